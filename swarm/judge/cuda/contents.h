// What a buffer of a call holds, made from a key: the same bytes in every kernel that makes them, so that
// inputs are verified without a copy. Contracted multiply-adds must be off.
#pragma once
#include "elements.h"

// In the order of contents.py.
enum Kind {
  NORMAL, UNIFORM, INTEGERS, BERNOULLI, CLAMPED, POSITIVE, SINE, COSINE, CAUSAL, POOL, PATTERN, SOFTMAX, CUMSUM
};
enum Spread { AS_DRAWN, SCALED, OUTLIERS, STRUCTURED };
constexpr float OUTLIER_FACTOR = 16.0f;
constexpr u32 OUTLIER_STRIDE = 509;

struct Region {        // one buffer and the guard bands around it
  u64 address;         // of its first byte; a multiple of 256
  u64 nbytes;
  u64 key;             // of its contents
  u64 source;          // POOL, SOFTMAX, CUMSUM: the pool's address; inspected outputs: where the snapshot goes, or 0
  u64 source_count;    // POOL, SOFTMAX, CUMSUM: its stored elements
  u64 start;           // POOL, SOFTMAX, CUMSUM: the element its slice begins with; OUTLIERS: the phase
  u64 zero_begin;      // STRUCTURED: elements
  u64 zero_end;
  i64 low;             // INTEGERS: the least value
  u64 span;            // INTEGERS: how many values, 0 for 2^64; CAUSAL, SOFTMAX, CUMSUM: the length of a row
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

RULE i64 integer_of(u64 word, i64 low, u64 span) {
  return low + (i64)(span ? high_product(word, span) : word);
}

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
  if (region.spread == OUTLIERS && place % OUTLIER_STRIDE == region.start) return value * (F)OUTLIER_FACTOR;
  const bool is_in_run = place >= region.zero_begin && place < region.zero_end;
  return region.spread == STRUCTURED && is_in_run ? (F)0 : value;
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

RULE float in_pool(const Region &region, u64 place) {
  const u32 bytes = bytes_of(region.type);
  const u32 code = (u32)stored(region.source, bytes, (region.start + place) % region.source_count);
  return region.type == F32 ? float_of(code) : region.type == F16 ? from_f16(code) : from_bf16(code);
}

// An element of a row that depends on itself: a pool's, changed for this call so that no row is ever seen again.
// A row of shares still sums up to the same, as each takes from its neighbour; one of sums still goes one way, as
// each goes on towards the next.
RULE float in_row(const Region &region, u64 place) {
  const u64 column = place % region.span;
  const float own = in_pool(region, place);
  if (region.kind == SOFTMAX) {
    if ((column ^ 1) >= region.span) return own;
    const u64 other = column % 2 ? place - 1 : place + 1, pair = column % 2 ? other : place;
    const float moved = smaller(own, in_pool(region, other)) * (unit_of(philox(pair, region.key).x) - 0.5f);
    return column % 2 ? own - moved : own + moved;
  }
  if (region.span == 1) return own;
  const float step = column + 1 < region.span ? in_pool(region, place + 1) - own : own - in_pool(region, place - 1);
  return own + step * unit_of(philox(place, region.key).x);
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
    } else if (region.kind == SOFTMAX || region.kind == CUMSUM) {
      code = encoded(region.type, in_row(region, place));
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
    words[word] = T == F32 ? bits_of(values[word])
                           : pair_of<T>(values[2 * word % count], values[(2 * word + 1) % count]);
  return uint4{words[0], words[1], words[2], words[3]};
}

// A hash of bytes that adds up over vectors in any order; the key is the judge's secret.
RULE void digest(const uint4 &vector, u64 index, u64 key, u64 &one, u64 &other) {
  const uint4 pad = philox(index, key);
  const u64 low = long_of(vector, 0) + long_of(pad, 0), high = long_of(vector, 1) + long_of(pad, 1);
  one += high_product(low | 1, high ^ 0x9E3779B97F4A7C15ull) ^ low * (high | 1);
  other += (low ^ high >> 29) * 0xBF58476D1CE4E5B9ull ^ (high ^ low >> 31) * 0x94D049BB133111EBull;
}
