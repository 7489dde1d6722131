// Numbers of every dtype as they lie in memory, in vectors of 16 bytes, and random words: NVRTC compiles this
// into the judge's kernels, g++ into a library that the tests hold against torch.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#if defined(__CUDACC__)
#define RULE __device__ __forceinline__
#define SLOW_RULE __device__ __noinline__
#define SHORT_LOOP _Pragma("unroll 1")
#else
#include <cmath>
#include <cstring>
#define RULE inline
#define SLOW_RULE inline
#define SHORT_LOOP
#if !defined(__VECTOR_TYPES_H__)  // nobody included CUDA's
struct alignas(16) uint4 {
  u32 x, y, z, w;
};
#endif
#endif

// ---- numbers and their bits

#if defined(__CUDACC__)
RULE u32 bits_of(float value) { return __float_as_uint(value); }
RULE float float_of(u32 bits) { return __uint_as_float(bits); }
RULE u64 bits_of(double value) { return (u64)__double_as_longlong(value); }
RULE double double_of(u64 bits) { return __longlong_as_double((i64)bits); }
RULE u64 high_product(u64 a, u64 b) { return __umul64hi(a, b); }
#define APPROXIMATE(name, instruction)                            \
  RULE float name(float value) {                                  \
    float found;                                                  \
    asm(instruction ".approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(value)); \
    return found;                                                 \
  }
APPROXIMATE(log2_of, "lg2")
APPROXIMATE(sine_of, "sin")
APPROXIMATE(cosine_of, "cos")
APPROXIMATE(root_of, "sqrt")
RULE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
RULE float larger(float a, float b) { return fmaxf(a, b); }
RULE float smaller(float a, float b) { return fminf(a, b); }
RULE float size_of(float value) { return fabsf(value); }
#else
RULE u32 bits_of(float value) { u32 bits; memcpy(&bits, &value, 4); return bits; }
RULE float float_of(u32 bits) { float value; memcpy(&value, &bits, 4); return value; }
RULE u64 bits_of(double value) { u64 bits; memcpy(&bits, &value, 8); return bits; }
RULE double double_of(u64 bits) { double value; memcpy(&value, &bits, 8); return value; }
RULE u64 high_product(u64 a, u64 b) { return (u64)(((unsigned __int128)a * b) >> 64); }
RULE float log2_of(float value) { return std::log2(value); }
RULE float sine_of(float value) { return std::sin(value); }
RULE float cosine_of(float value) { return std::cos(value); }
RULE float root_of(float value) { return std::sqrt(value); }
RULE float fused(float a, float b, float c) { return std::fma(a, b, c); }
RULE float larger(float a, float b) { return a > b ? a : b; }
RULE float smaller(float a, float b) { return a < b ? a : b; }
RULE float size_of(float value) { return std::fabs(value); }
#endif
RULE double size_of(double value) { return double_of(bits_of(value) & ~(1ull << 63)); }
RULE double larger(double a, double b) { return a > b ? a : b; }
RULE u32 low_word(u64 value) { return (u32)value; }
RULE u32 high_word(u64 value) { return (u32)(value >> 32); }

// ---- dtypes, in the order of contents.py

enum Type { F64, F32, F16, BF16, E4M3, E5M2, E2M1, I64, I32, I16, I8, BOOL };

template <int T>
struct Traits {
  static constexpr int bytes = T == F64 || T == I64                  ? 8
                               : T == F32 || T == I32                ? 4
                               : T == F16 || T == BF16 || T == I16 ? 2
                                                                     : 1;
  static constexpr int count = 16 / bytes;  // stored elements in a vector
  static constexpr bool is_packed = T == E2M1;
};

// Encode the float nearest in a format of `M` mantissa bits; `most` is its largest finite code.
template <int M, int BIAS>
RULE u32 encode_small(float value, u32 most, u32 beyond, u32 nan) {
  const u32 bits = bits_of(value), magnitude = bits & 0x7fffffffu;
  constexpr int exponent_bits = M == 3 ? 4 : 5;
  const u32 sign = (bits >> 31) << (M + exponent_bits);
  u32 code;
  if (magnitude > 0x7f800000u) {
    code = nan;
  } else if (magnitude < (u32)(127 + 1 - BIAS) << 23) {  // the sum is rounded to the least value's multiples
    const float unit = float_of((u32)(127 + 1 - BIAS - M + 23) << 23);
    code = bits_of(float_of(magnitude) + unit) - bits_of(unit);
  } else {
    const u32 odd = (magnitude >> (23 - M)) & 1u;
    code = (magnitude + odd + ((1u << (22 - M)) - 1u) - ((u32)(127 - BIAS) << 23)) >> (23 - M);
    code = code > most ? beyond : code;
  }
  return code | sign;
}

template <int M, int BIAS>
RULE float decode_small(u32 magnitude) {
  const float least = float_of((u32)(127 + 1 - BIAS - M) << 23);
  return magnitude >> M ? float_of((magnitude << (23 - M)) + ((u32)(127 - BIAS) << 23))
                        : (float)magnitude * least;
}

RULE float with_sign(float magnitude, u32 sign) { return sign ? -magnitude : magnitude; }

RULE u32 to_f16(float value) {
#if defined(__CUDACC__)
  u16 code;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(value));
  return code;
#else
  return encode_small<10, 15>(value, 0x7bff, 0x7c00, 0x7e00);
#endif
}

RULE float from_f16(u32 code) {
#if defined(__CUDACC__)
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((u16)code));
  return value;
#else
  const u32 magnitude = code & 0x7fffu;
  const float found = magnitude >= 0x7c00u ? float_of(0x7f800000u | (magnitude & 0x3ffu) << 13)
                                           : decode_small<10, 15>(magnitude);
  return with_sign(found, code & 0x8000u);
#endif
}

RULE u32 to_bf16(float value) {
  const u32 bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

RULE float from_bf16(u32 code) { return float_of(code << 16); }

RULE u32 to_e4m3(float value) { return encode_small<3, 7>(value, 0x7e, 0x7f, 0x7f); }
RULE u32 to_e5m2(float value) { return encode_small<2, 15>(value, 0x7b, 0x7c, 0x7e); }

RULE float from_e4m3(u32 code) {
  const u32 magnitude = code & 0x7fu;
  return with_sign(magnitude == 0x7fu ? float_of(0x7fc00000u) : decode_small<3, 7>(magnitude), code & 0x80u);
}

RULE float from_e5m2(u32 code) { return from_f16(code << 8); }

RULE float from_e2m1(u32 code) { return with_sign(decode_small<1, 1>(code & 7u), code & 8u); }

// Two float16 or bfloat16 in a word.
template <int T>
RULE u32 pair_of(float low, float high) {
#if defined(__CUDACC__)
  u32 pair;
  if (T == F16) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return T == F16 ? to_f16(low) | to_f16(high) << 16 : to_bf16(low) | to_bf16(high) << 16;
#endif
}

// ---- vectors

RULE u32 word_of(const uint4 &vector, int index) {
  return index == 0 ? vector.x : index == 1 ? vector.y : index == 2 ? vector.z : vector.w;
}

template <int BYTES>
RULE u32 element_of(const uint4 &vector, int index) {
  if (BYTES == 4) return word_of(vector, index);
  if (BYTES == 2) return word_of(vector, index >> 1) >> (16 * (index & 1)) & 0xffffu;
  return word_of(vector, index >> 2) >> (8 * (index & 3)) & 0xffu;
}

RULE u64 long_of(const uint4 &vector, int index) {
  return index == 0 ? (u64)vector.y << 32 | vector.x : (u64)vector.w << 32 | vector.z;
}

RULE uint4 joined(u64 low, u64 high) {
  return uint4{low_word(low), high_word(low), low_word(high), high_word(high)};
}

// The first `count` bytes of `first`, then those of `second`.
RULE uint4 blended(const uint4 &first, const uint4 &second, int count) {
  u32 words[4];
#pragma unroll
  for (int word = 0; word < 4; word++) {
    const int own = count - 4 * word;
    const u32 mask = own <= 0 ? 0u : own >= 4 ? ~0u : (1u << (8 * own)) - 1u;
    words[word] = (word_of(first, word) & mask) | (word_of(second, word) & ~mask);
  }
  return uint4{words[0], words[1], words[2], words[3]};
}

// ---- random words: Philox4x32-7 (Salmon et al., 2011)

RULE uint4 philox(u64 counter, u64 key) {
  u32 a = low_word(counter), b = high_word(counter), c = 0, d = 0;
  u32 k0 = low_word(key), k1 = high_word(key);
#pragma unroll
  for (int round = 0; round < 7; round++) {
    const u64 first = (u64)0xD2511F53u * a, second = (u64)0xCD9E8D57u * c;
    const u32 next_a = high_word(second) ^ b ^ k0, next_c = high_word(first) ^ d ^ k1;
    b = low_word(second), d = low_word(first), a = next_a, c = next_c;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return uint4{a, b, c, d};
}

// ---- elements by type at run time

RULE u32 bytes_of(u32 type) {
  return type == F64 || type == I64                  ? 8
         : type == F32 || type == I32                ? 4
         : type == F16 || type == BF16 || type == I16 ? 2
                                                     : 1;
}

RULE u64 stored(u64 address, u32 bytes, u64 place) {
  switch (bytes) {
    case 8: return ((const u64 *)address)[place];
    case 4: return ((const u32 *)address)[place];
    case 2: return ((const u16 *)address)[place];
    default: return ((const u8 *)address)[place];
  }
}
