// Finds the least logit of the nucleus bit by bit instead of sorting, then the token by running sums: a block per sequence.
//
// THREADS  threads of a block
#include "problem.h"

// The order of floats as the order of unsigned integers; both zeros are equal.
__device__ unsigned rank_of(float logit) {
  const int bits = __float_as_int(logit + 0.0f);
  return bits < 0 ? ~bits : bits | 0x80000000u;
}

struct Most {
  static __device__ double join(double a, double b) { return a < b ? b : a; }
};
struct Sum {
  static __device__ double join(double a, double b) { return a + b; }
};

template <class Rule> __device__ double over_block(double own) {
  __shared__ double of_thread[THREADS];
  __syncthreads();
  of_thread[threadIdx.x] = own;
  for (int step = THREADS / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) of_thread[threadIdx.x] = Rule::join(of_thread[threadIdx.x], of_thread[threadIdx.x + step]);
  }
  __syncthreads();
  return of_thread[0];
}

// The mass of the logits whose rank is at least this; probabilities are those to the highest logit, `top`.
__device__ double mass_from(unsigned rank, const float *logits, int vocabulary, float top) {
  double own = 0;
  for (int i = threadIdx.x; i < vocabulary; i += THREADS)
    if (rank_of(logits[i]) >= rank) own += expf(logits[i] - top);
  return over_block<Sum>(own);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sample(const float *logits, const float *top_p, const float *u, long long *token, float *logprob,
           int vocabulary) {
  __shared__ double of_thread[THREADS];
  __shared__ int ties[THREADS];
  logits += (size_t)blockIdx.x * vocabulary;
  double highest = logits[0];
  for (int i = threadIdx.x; i < vocabulary; i += THREADS) highest = Most::join(highest, logits[i]);
  const float top = over_block<Most>(highest);

  const double wanted = top_p[blockIdx.x] * mass_from(0, logits, vocabulary, top);
  unsigned last = 0;  // the highest rank from which on the mass suffices
  for (int bit = 31; bit >= 0; bit--) {
    const unsigned higher = last | 1u << bit;
    if (mass_from(higher, logits, vocabulary, top) >= wanted) last = higher;
  }
  const double above = last == ~0u ? 0 : mass_from(last + 1, logits, vocabulary, top);

  // Of the tokens with that very logit only the first few may belong. Each thread looks at neighbouring tokens now.
  const int share = (vocabulary + THREADS - 1) / THREADS, begin = threadIdx.x * share, end = min(begin + share, vocabulary);
  float of_last = 0;
  ties[threadIdx.x] = 0;
  for (int i = begin; i < end; i++) ties[threadIdx.x] += rank_of(logits[i]) == last;
  for (int i = begin; i < end; i++)
    if (rank_of(logits[i]) == last) of_last = expf(logits[i] - top);
  of_last = over_block<Most>(of_last);
  const double needed = ceil((wanted - above) / of_last);
  int ties_before = 0;
  for (int thread = 0; thread < threadIdx.x; thread++) ties_before += ties[thread];

  const double mass = above + needed * of_last, target = u[blockIdx.x] * mass;
  for (int round = 0; round < 2; round++) {  // first what each thread's tokens add up to, then which token it is
    double running = 0;
    if (round == 1)
      for (int thread = 0; thread < threadIdx.x; thread++) running += of_thread[thread];
    const bool is_before = round == 1 && running < target;
    int tie = ties_before;
    for (int i = begin; i < end; i++) {
      const unsigned rank = rank_of(logits[i]);
      const bool is_in = rank > last || (rank == last && tie++ < needed);
      if (is_in) running += expf(logits[i] - top);
      if (is_before && running >= target) {
        token[blockIdx.x] = i;
        logprob[blockIdx.x] = logits[i] - top - log(mass);
        break;
      }
    }
    if (round == 0) of_thread[threadIdx.x] = running;
    __syncthreads();
  }
}
