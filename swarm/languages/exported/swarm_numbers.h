#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <type_traits>

// Arithmetic of launch plans: integers round down, a remainder has the sign of its divisor.
namespace swarm {

inline double divide(double a, double b) {
  if (b == 0) throw std::runtime_error("a launch plan divides by zero");
  return a / b;
}

inline int64_t floordiv(int64_t a, int64_t b) {
  if (b == 0) throw std::runtime_error("a launch plan divides by zero");
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

inline int64_t modulo(int64_t a, int64_t b) { return a - floordiv(a, b) * b; }

inline double modulo(double a, double b) {
  if (b == 0) throw std::runtime_error("a launch plan divides by zero");
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

inline double floordiv(double a, double b) {
  if (b == 0) throw std::runtime_error("a launch plan divides by zero");
  const double rest = std::fmod(a, b);
  const double whole = (a - rest) / b - (rest != 0 && (rest < 0) != (b < 0));
  const double low = std::floor(whole);
  return whole - low > 0.5 ? low + 1 : low;
}

inline int64_t ceildiv(int64_t a, int64_t b) { return -floordiv(-a, b); }
inline double ceildiv(double a, double b) { return -floordiv(-a, b); }

inline int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) throw std::runtime_error("a launch plan raises an integer to a negative power");
  int64_t result = 1;
  for (; exponent > 0; --exponent) result *= base;
  return result;
}

inline double power(double base, double exponent) { return std::pow(base, exponent); }

inline double log2(double a) {
  if (!(a > 0)) throw std::runtime_error("a launch plan takes a logarithm of nothing");
  return std::log2(a);
}

inline int64_t integer(int64_t a) { return a; }

inline int64_t integer(double a) {
  if (a != std::floor(a)) throw std::runtime_error("a launch plan needs an integer");
  return static_cast<int64_t>(a);
}

template <class T>
T narrow(int64_t a) {
  const T result = static_cast<T>(a);
  if (static_cast<int64_t>(result) != a || (std::is_unsigned<T>::value && a < 0))
    throw std::runtime_error("an argument of a launch plan does not fit its type");
  return result;
}

inline int64_t at_least(int64_t least, int64_t a) {
  if (a < least) throw std::runtime_error("a size in a launch plan is too small");
  return a;
}

}  // namespace swarm
