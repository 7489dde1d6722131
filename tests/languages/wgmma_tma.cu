// A TMA load and a wgmma instruction: compiles for sm_90a alone. What it computes means nothing.
#include <cuda.h>
#include <cuda_bf16.h>
extern "C" __global__ void __launch_bounds__(128)
k(const __grid_constant__ CUtensorMap a, float* out, unsigned long long da, unsigned long long db) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) unsigned long long full;
  unsigned bar = (unsigned)__cvta_generic_to_shared(&full), to = (unsigned)__cvta_generic_to_shared(smem);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16384;" ::"r"(bar));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(to), "l"(&a), "r"(bar), "r"(0), "r"(0) : "memory");
  }
  __syncthreads();
  float d[4] = {};
  asm volatile("wgmma.fence.sync.aligned;");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(da), "l"(db));
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;");
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;");
  out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
