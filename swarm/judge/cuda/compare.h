// What counts as a match, element by element: the arithmetic of check.py, counted for `check.judge` to judge.
#pragma once
#include "elements.h"

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

template <typename F>
RULE void add_finite(Tally<F> &tally, const Pair &pair, F got, F wanted, u64 place) {
  tally.got_any |= got != (F)0, tally.expected_any |= wanted != (F)0;
  add(tally, pair, size_of(got - wanted), size_of(wanted), place);
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
    add_finite(tally, pair, got, wanted, place);
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

// Count the logical element `place`, whatever its type: not fast, but all the rules.
template <typename F>
RULE void examine(Tally<F> &tally, const Pair &pair, u64 place) {
  const u32 type = pair.type;
  u64 code = stored(pair.got, bytes_of(type), place / logical_per_stored(type));
  if (!is_float_type(type)) {
    add_integers(tally, pair, (u64)integer_in(type, code), ((const u64 *)pair.expected)[place], place);
    return;
  }
  const bool is_poison = type != E2M1 && code == pair.poison;
  if (type == E2M1) code = place & 1 ? code >> 4 : code & 15;
  const F got = type == F64 ? (F)double_of(code) : (F)float_in(type, code);
  const F wanted = type == F64 ? (F)((const double *)pair.expected)[place]
                               : (F)((const float *)pair.expected)[place];
  if (is_finite(size_of(got - wanted))) add_finite(tally, pair, got, wanted, place);
  else add_strange(tally, pair, got, wanted, is_poison, place);
}

// What a vector is held against to be a usual one: all finite, and no error larger than those seen before.
struct Bounds {
  float atol, rtol, least, max_abs, max_rel;
};

RULE Bounds bounds_of(const Pair &pair) {
  const float atol = (float)pair.atol;
  return Bounds{atol, (float)pair.rtol, atol > 0.0f ? atol : 1e-30f, -1.0f, 0.0f};
}

// Count a vector of a type compared in float32 if it is a usual one; else say so, for `examine`.
template <int T>
RULE bool count_usual(const Bounds &bounds, const uint4 &got, const uint4 *expected, u32 &bad, u32 &got_bits,
                      u32 &expected_bits) {
  constexpr int logical = Traits<T>::is_packed ? 2 * Traits<T>::count : Traits<T>::count;
  bool is_strange = false, is_larger = false;
  u32 wrong = 0;
#pragma unroll
  for (int part = 0; part < logical / 4; part++) {
    const uint4 words = expected[part];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int at = 4 * part + i;
      u32 code;
      if constexpr (T == E2M1) code = element_of<1>(got, at / 2) >> (4 * (at & 1)) & 15u;
      else code = element_of<Traits<T>::bytes>(got, at);
      const float x = float_in(T, code), y = float_of(word_of(words, i));
      const float error = size_of(x - y), size = size_of(y);
      is_strange |= !is_finite(error);
      is_larger |= error > bounds.max_abs || error > bounds.max_rel * larger(size, bounds.least);
      wrong += error > size * bounds.rtol + bounds.atol;
      got_bits |= bits_of(x), expected_bits |= bits_of(y);
    }
  }
  if (is_strange || is_larger) return false;
  bad += wrong;
  return true;
}

// The bits of the largest error and, after them, of where it is: the maximum is the worst, then the first.
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
