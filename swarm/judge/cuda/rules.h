// What a call's buffers hold and what counts as a match, element by element: NVRTC compiles this into the
// judge's kernels, g++ into a library that the tests hold against torch. All work is in vectors of 16 bytes.
// Contracted multiply-adds must be off: contents are verified by making them again in another kernel.
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
struct alignas(16) uint4 {
  u32 x, y, z, w;
};
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
  static constexpr bool is_float = T <= E2M1;
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
  } else if (magnitude < (u32)(127 + 1 - BIAS) << 23) {  // adding this rounds to a multiple of the least value
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

RULE uint4 joined(u64 low, u64 high) { return uint4{low_word(low), high_word(low), low_word(high), high_word(high)}; }

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

// ---- what a buffer holds, in the order of contents.py

enum Kind { NORMAL, UNIFORM, INTEGERS, BERNOULLI, CLAMPED, POSITIVE, SINE, COSINE, CAUSAL, POOL, PATTERN };
enum Spread { AS_DRAWN, SCALED, OUTLIERS, STRUCTURED };
constexpr float OUTLIER_FACTOR = 16.0f;
constexpr u32 OUTLIER_STRIDE = 509;

struct Region {        // one buffer and the guard bands around it
  u64 address;         // of its first byte; a multiple of 256
  u64 nbytes;
  u64 key;             // of its contents
  u64 source;          // POOL: the pool's address; inspected outputs: where the snapshot goes, or 0
  u64 source_count;    // POOL: its stored elements
  u64 start;           // POOL: the element its slice begins with; OUTLIERS: the phase
  u64 zero_begin;      // STRUCTURED: elements
  u64 zero_end;
  i64 low;             // INTEGERS: the least value
  u64 span;            // INTEGERS: how many values, 0 for 2^64; CAUSAL: the length of a row
  u64 pattern;         // PATTERN: eight bytes
  double a, b;         // mean and deviation; low and high; probability; bound; least number
  float factor;        // of all but AS_DRAWN
  u32 type, kind, spread, mode;
  u32 reserved;
};

RULE float unit_of(u32 word) { return (float)(word >> 8) * 0x1p-24f; }

RULE void normal_pair(u32 first, u32 second, float &one, float &other) {
  const float radius = root_of(size_of(log2_of(fused((float)first, 0x1p-32f, 0x1p-33f)) * -1.38629436f));
  const float angle = (float)second * (6.28318531f * 0x1p-32f);
  one = radius * cosine_of(angle), other = radius * sine_of(angle);
}

RULE float clamped(float value, float bound) { return smaller(larger(value, -bound), bound); }

// Turn a normal number into what kinds other than NORMAL make of it.
RULE float shaped(float value, u32 kind, float a, float b) {
  switch (kind) {
    case CLAMPED: return clamped(value, a);
    case POSITIVE: return size_of(value) + 0.1f;
    case SINE: return sine_of(clamped(value, 3.0f));
    case COSINE: return cosine_of(clamped(value, 3.0f));
    default: return fused(value, b, a);
  }
}

RULE i64 integer_of(u64 word, i64 low, u64 span) { return low + (i64)(span ? high_product(word, span) : word); }

// The least number above the diagonal of each square of rows, else 0.
RULE float causal(u64 place, u64 row_length, float least) {
  const u64 row = place / row_length;
  return place - row * row_length > row % row_length ? least : 0.0f;
}

// Apply the spread of a draw to the element at `place`.
template <typename F>
RULE F spread(const Region &region, u64 place, F value) {
  if (region.spread == AS_DRAWN) return value;
  value *= (F)region.factor;
  if (region.spread == OUTLIERS) return place % OUTLIER_STRIDE == region.start ? value * (F)OUTLIER_FACTOR : value;
  if (region.spread == STRUCTURED) return place >= region.zero_begin && place < region.zero_end ? (F)0 : value;
  return value;
}

// One element, from its own random words: 32 bits and, for types of eight bytes, as many more.
RULE double drawn(const Region &region, u64 place, u32 word, u32 more, float normal) {
  const bool is_wide = region.type == F64;
  double value;
  if (region.kind == UNIFORM) {
    const double unit = is_wide ? (double)(((u64)word << 32 | more) >> 11) * 0x1p-53 : (double)unit_of(word);
    value = region.a + unit * (region.b - region.a);
  } else if (region.kind == BERNOULLI) {
    value = (double)unit_of(word) < region.a ? 1.0 : 0.0;
  } else if (region.kind == CAUSAL) {
    value = causal(place, region.span, (float)region.a);
  } else {
    value = shaped(normal, region.kind, (float)region.a, (float)region.b);
    if (is_wide) value *= 1.0 + (double)(int)more * 0x1p-56;  // the mantissa's other bits
  }
  return spread(region, place, value);
}

RULE u32 encoded(u32 type, double value) {
  switch (type) {
    case F32: return bits_of((float)value);
    case F16: return to_f16((float)value);
    case BF16: return to_bf16((float)value);
    case E4M3: return to_e4m3((float)value);
    case E5M2: return to_e5m2((float)value);
    case BOOL: return value != 0.0;
    case I32: return (u32)(int)value;
    case I16: return (u32)(int)value & 0xffffu;
    default: return (u32)(int)value & 0xffu;
  }
}

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

// The contents of one vector of a buffer, whatever its type and kind: not fast, but short.
SLOW_RULE uint4 any_contents(const Region &region, u64 vector) {
  const u32 bytes = bytes_of(region.type), count = 16 / bytes;
  u64 halves[2] = {region.pattern, region.pattern};
  if (region.kind == PATTERN) return joined(halves[0], halves[1]);
  halves[0] = halves[1] = 0;
  const u64 first = vector * count;
  uint4 words = uint4{0, 0, 0, 0};
  float normal = 0.0f, next = 0.0f;
  SHORT_LOOP
  for (u32 i = 0; i < count; i++) {
    const u64 place = first + i;
    const u32 lane = bytes == 8 ? 2 * i : i & 3;
    u64 code;
    if (region.kind == POOL) {
      code = stored(region.source, bytes, (region.start + place) % region.source_count);
    } else {
      if (lane == 0) words = philox(bytes == 8 ? vector : place / 4, region.key);
      const u32 word = word_of(words, lane), more = word_of(words, lane | 1);
      if (bytes == 8) {
        if (i == 0) normal_pair(words.x, words.z, normal, next);
        else normal = next;
      } else if (lane % 2 == 0) {
        normal_pair(word, more, normal, next);
      } else {
        normal = next;
      }
      if (region.kind == INTEGERS) {
        const u64 wide = (u64)word << 32 | (bytes == 8 ? more : word);
        const i64 value = integer_of(wide, region.low, region.span);
        code = region.type == F64    ? bits_of((double)value)
               : region.type <= E5M2 ? encoded(region.type, (double)value)
               : region.type == BOOL ? value != 0
                                     : (u64)value;
      } else {
        const double value = drawn(region, place, word, more, normal);
        code = region.type == F64   ? bits_of(value)
               : region.type == I64 ? (u64)(i64)value
                                    : (u64)encoded(region.type, value);
      }
    }
    if (bytes < 8) code &= (1ull << (8 * bytes)) - 1;
    const u32 at = i * bytes;
    halves[at / 8] |= code << (8 * (at % 8));
  }
  return joined(halves[0], halves[1]);
}

// The usual case, NORMAL of float32, float16 or bfloat16: what stays the same from vector to vector.
struct Usual {
  u64 key, zero_begin, zero_end;
  float mean, deviation;
  u32 spread, phase;
};

RULE bool is_usual(const Region &region) {
  return region.kind == NORMAL && (region.type == F32 || region.type == F16 || region.type == BF16);
}

RULE Usual usual_of(const Region &region) {
  const float factor = region.spread == AS_DRAWN ? 1.0f : region.factor;
  return Usual{region.key,           region.zero_begin,        region.zero_end, (float)region.a,
               (float)region.b * factor, region.spread, (u32)region.start};
}

template <int T>
RULE uint4 usual_contents(const Usual &usual, u64 vector) {
  constexpr int count = Traits<T>::count;
  const u64 first = vector * count;
  float values[count];
#pragma unroll
  for (int part = 0; part < count / 4; part++) {
    const uint4 words = philox(vector * (count / 4) + part, usual.key);
    normal_pair(words.x, words.y, values[4 * part], values[4 * part + 1]);
    normal_pair(words.z, words.w, values[4 * part + 2], values[4 * part + 3]);
  }
#pragma unroll
  for (int i = 0; i < count; i++) values[i] = fused(values[i], usual.deviation, usual.mean);
  if (usual.spread == OUTLIERS) {
    const u32 past = (u32)((first + OUTLIER_STRIDE - usual.phase) % OUTLIER_STRIDE);
    const u32 hit = past ? OUTLIER_STRIDE - past : 0;
#pragma unroll
    for (int i = 0; i < count; i++) values[i] *= hit == (u32)i ? OUTLIER_FACTOR : 1.0f;
  } else if (usual.spread == STRUCTURED) {
#pragma unroll
    for (int i = 0; i < count; i++)
      values[i] = first + i >= usual.zero_begin && first + i < usual.zero_end ? 0.0f : values[i];
  }
  u32 words[4];
#pragma unroll
  for (int word = 0; word < 4; word++)
    words[word] = T == F32 ? bits_of(values[word]) : pair_of<T>(values[2 * word % count], values[(2 * word + 1) % count]);
  return uint4{words[0], words[1], words[2], words[3]};
}

// A hash of bytes that adds up over vectors in any order; the key is the judge's secret.
RULE void digest(const uint4 &vector, u64 index, u64 key, u64 &one, u64 &other) {
  const uint4 pad = philox(index, key);
  const u64 low = long_of(vector, 0) + long_of(pad, 0), high = long_of(vector, 1) + long_of(pad, 1);
  one += high_product(low | 1, high ^ 0x9E3779B97F4A7C15ull) ^ low * (high | 1);
  other += (low ^ high >> 29) * 0xBF58476D1CE4E5B9ull ^ (high ^ low >> 31) * 0x94D049BB133111EBull;
}

// ---- does it match?

struct Pair {       // one output and what is expected
  u64 got;          // address, a multiple of 16
  u64 expected;     // in float32, float64 or int64, by type
  u64 count;        // stored elements
  u64 poison;       // the bits of an element that was never written
  double atol, rtol;
  u32 type;
  u32 allows_negative_inf;
};

struct Stats {      // what comparing found; places are complements, so that 0 is none and a maximum the first
  u64 bad;          // elements out of tolerance
  u64 worst;        // bits of the largest error as float32, then the complement of its place
  u64 max_abs;      // bits of a double, as below
  u64 max_rel;      // relative to max(|expected|, atol)
  u64 nan;          // where a NaN is
  u64 strange;      // where anything else that is not finite is
  u64 poisoned;     // how many elements still hold the poison, if anything is strange
  u64 first_poisoned;
  u64 invalid;      // where what is expected is not finite itself
  u64 any;          // bit 0: something got is not zero; bit 1: something expected is not
};

constexpr int PLACE_BITS = 33;
constexpr u64 PLACE_MASK = (1ull << PLACE_BITS) - 1;

RULE u64 larger(u64 a, u64 b) { return a > b ? a : b; }

template <typename F>
struct Tally {      // one thread's share
  F max_abs, max_rel;
  u64 worst;
  u64 bad, nan, strange, poisoned, first_poisoned, invalid;
  u32 got_any, expected_any;
};

template <typename F>
RULE Tally<F> empty_tally() {
  return Tally<F>{(F)-1, (F)0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
}

RULE bool is_finite(float value) { return size_of(value) <= 3.402823466e38f; }
RULE bool is_finite(double value) { return size_of(value) <= 1.7976931348623157e308; }

template <typename F>
RULE bool is_negative_inf(F value) {
  return value < (F)0 && !is_finite(value);
}

// Count a pair of numbers; their size and error are in the precision they are compared in.
template <typename F>
RULE void add(Tally<F> &tally, const Pair &pair, F error, F size, u64 place) {
  const F atol = (F)pair.atol, least = atol > (F)0 ? atol : (F)1e-30;
  tally.bad += error > size * (F)pair.rtol + atol;
  if (error > tally.max_abs) tally.max_abs = error, tally.worst = place;
  const F divisor = larger(size, least);
  if (error > tally.max_rel * divisor) tally.max_rel = error / divisor;
}

// Count a pair of floats if both are finite; else say so, for `examine` to look at it.
template <typename F>
RULE bool add_finite(Tally<F> &tally, const Pair &pair, F got, F wanted, u64 place) {
  const F error = size_of(got - wanted);
  if (!is_finite(error)) return false;
  tally.got_any |= got != (F)0, tally.expected_any |= wanted != (F)0;
  add(tally, pair, error, size_of(wanted), place);
  return true;
}

// Count a pair of which one is not finite, or whose difference is not.
template <typename F>
RULE void add_strange(Tally<F> &tally, const Pair &pair, F got, F wanted, bool is_poison, u64 place) {
  const bool is_allowed = pair.allows_negative_inf && is_negative_inf(wanted);
  if (is_poison) tally.poisoned++, tally.first_poisoned = larger(tally.first_poisoned, ~place);
  if (!is_finite(wanted) && !is_allowed) tally.invalid = larger(tally.invalid, ~place);
  if (is_allowed && is_negative_inf(got)) return;
  if (got != got) {
    tally.nan = larger(tally.nan, ~place);
  } else if (!is_finite(got) || !is_finite(wanted)) {
    tally.strange = larger(tally.strange, ~place);
  } else {
    tally.got_any |= got != (F)0, tally.expected_any |= wanted != (F)0;
    add(tally, pair, size_of(got - wanted), size_of(wanted), place);
  }
}

RULE bool is_float_type(u32 type) { return type <= E2M1; }
RULE u32 logical_per_stored(u32 type) { return type == E2M1 ? 2 : 1; }

RULE float float_in(u32 type, u64 code) {
  switch (type) {
    case F32: return float_of((u32)code);
    case F16: return from_f16((u32)code);
    case BF16: return from_bf16((u32)code);
    case E4M3: return from_e4m3((u32)code);
    case E5M2: return from_e5m2((u32)code);
    default: return from_e2m1((u32)code);
  }
}

RULE i64 integer_in(u32 type, u64 code) {
  switch (type) {
    case I32: return (int)(u32)code;
    case I16: return (short)(u16)code;
    case I8: return (signed char)(u8)code;
    case BOOL: return (u8)code;
    default: return (i64)code;
  }
}

RULE u64 magnitude_of(u64 value) { return value >> 63 ? 0 - value : value; }

template <typename F>
RULE void add_integers(Tally<F> &tally, const Pair &pair, u64 got, u64 wanted, u64 place) {
  tally.got_any |= got != 0, tally.expected_any |= wanted != 0;
  add(tally, pair, (F)(i64)magnitude_of(got - wanted), (F)(i64)magnitude_of(wanted), place);
}

// Look at the logical element `place` on its own; `only_strange` leaves out what `add_finite` has counted.
template <typename F>
RULE void examine(Tally<F> &tally, const Pair &pair, u64 place, bool only_strange) {
  const u32 type = pair.type;
  u64 code = stored(pair.got, bytes_of(type), place / logical_per_stored(type));
  if (!is_float_type(type)) {
    const u64 wanted = ((const u64 *)pair.expected)[place];
    if (!only_strange) add_integers(tally, pair, (u64)integer_in(type, code), wanted, place);
    return;
  }
  const bool is_poison = type != E2M1 && code == pair.poison;
  if (type == E2M1) code = place & 1 ? code >> 4 : code & 15;
  const F got = type == F64 ? (F)double_of(code) : (F)float_in(type, code);
  const F wanted = type == F64 ? (F)((const double *)pair.expected)[place] : (F)((const float *)pair.expected)[place];
  if (!is_finite(size_of(got - wanted))) add_strange(tally, pair, got, wanted, is_poison, place);
  else if (!only_strange) add_finite(tally, pair, got, wanted, place);
}

template <bool IS_SINGLE>
struct Real {
  typedef float type;
};
template <>
struct Real<false> {
  typedef double type;
};
template <int T>
struct Comparable {  // the precision in which errors are compared
  typedef typename Real<T != F64 && Traits<T>::is_float>::type F;
};

// Compare a whole vector; return whether something in it is left for `examine`.
template <int T>
RULE bool compare(Tally<typename Comparable<T>::F> &tally, const Pair &pair, u64 vector, const uint4 &got) {
  constexpr int count = Traits<T>::count, logical = Traits<T>::is_packed ? 2 * count : count;
  const u64 first = vector * logical;
  bool is_done = true;
  if constexpr (!Traits<T>::is_float || T == F64) {
    const uint4 *expected = (const uint4 *)pair.expected + first / 2;
    SHORT_LOOP
    for (int part = 0; part < count / 2; part++) {
      const uint4 words = expected[part];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int at = 2 * part + i;
        const u64 wanted = long_of(words, i);
        u64 code;
        if constexpr (Traits<T>::bytes == 8) code = long_of(got, at);
        else code = element_of<Traits<T>::bytes>(got, at);
        if constexpr (T == F64) {
          is_done &= add_finite(tally, pair, double_of(code), double_of(wanted), first + at);
        } else {
          add_integers(tally, pair, (u64)integer_in(T, code), wanted, first + at);
        }
      }
    }
  } else {
    const uint4 *expected = (const uint4 *)pair.expected + first / 4;
#pragma unroll Traits<T>::bytes == 1 ? 1 : 4
    for (int part = 0; part < logical / 4; part++) {
      const uint4 words = expected[part];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int at = 4 * part + i;
        u32 code;
        if constexpr (T == E2M1) code = element_of<1>(got, at / 2) >> (4 * (at & 1)) & 15u;
        else code = element_of<Traits<T>::bytes>(got, at);
        is_done &= add_finite(tally, pair, float_in(T, code), float_of(word_of(words, i)), first + at);
      }
    }
  }
  return !is_done;
}

// The bits of a tally's largest error and, after them, of where it is: the maximum is the worst, then the first.
template <typename F>
RULE u64 worst_of(const Tally<F> &tally) {
  if (tally.max_abs < (F)0) return 0;
  const u64 place = tally.worst < PLACE_MASK ? tally.worst : PLACE_MASK;
  return (u64)bits_of((float)tally.max_abs) << PLACE_BITS | (PLACE_MASK - place);
}

// Whether a float that has these bits is not finite; integers always are.
RULE bool is_strange(u32 type, u64 code) {
  switch (type) {
    case F64: return (code & 0x7ff0000000000000ull) == 0x7ff0000000000000ull;
    case F32: return (code & 0x7f800000u) == 0x7f800000u;
    case F16: return (code & 0x7c00u) == 0x7c00u;
    case BF16: return (code & 0x7f80u) == 0x7f80u;
    case E4M3: return (code & 0x7fu) == 0x7fu;
    case E5M2: return (code & 0x7cu) == 0x7cu;
    default: return false;
  }
}

// Whether one of the first `bytes` bytes of a vector belongs to a strange element.
RULE bool any_strange(u32 type, const uint4 &vector, u32 bytes) {
  if (!is_float_type(type) || type == E2M1) return false;
  const u32 size = bytes_of(type);
  const u64 mask = size == 8 ? ~0ull : (1ull << (8 * size)) - 1;
  bool found = false;
  SHORT_LOOP
  for (u32 at = 0; at < bytes; at += size)
    found |= is_strange(type, long_of(vector, at / 8) >> (8 * (at % 8)) & mask);
  return found;
}
