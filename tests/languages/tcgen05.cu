// Tensor memory and a tcgen05.mma: compiles for sm_100a alone. What it computes means nothing.
extern "C" __global__ void __launch_bounds__(128)
k(float* out, unsigned long long da, unsigned long long db, unsigned idesc) {
  __shared__ unsigned place;
  __shared__ __align__(8) unsigned long long done;
  unsigned at = (unsigned)__cvta_generic_to_shared(&place), bar = (unsigned)__cvta_generic_to_shared(&done);
  if (threadIdx.x < 32)
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(at));
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
  __syncthreads();
  unsigned tmem = place, r;
  if (threadIdx.x == 0) {
    asm volatile("{.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"
                 "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;}" ::"r"(tmem), "l"(da), "l"(db), "r"(idesc));
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(bar));
  }
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(r) : "r"(tmem));
  asm volatile("tcgen05.wait::ld.sync.aligned;");
  out[threadIdx.x] = __uint_as_float(r);
  __syncthreads();
  if (threadIdx.x < 32) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" ::"r"(tmem));
}
