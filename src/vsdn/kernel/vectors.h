// Vectors of one register, as GCC and Clang offer them on every processor; VSDN_BYTES is the register's size: 64 for
// AVX-512, whose own instructions are used where they save some. (GCC's target pragma defines no __AVX512F__ in C++.)
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#if VSDN_BYTES == 64
#include <immintrin.h>
#endif

namespace VSDN_ISA {

template <class T>
struct Lanes {
  static constexpr int count = VSDN_BYTES / sizeof(T);
  typedef T vec __attribute__((vector_size(VSDN_BYTES)));
};

template <class T>
using vec = typename Lanes<T>::vec;

template <class T>
inline int padded(int size) {
  return (size + Lanes<T>::count - 1) / Lanes<T>::count * Lanes<T>::count;
}

template <class T>
inline vec<T> load(const T* from) {
  vec<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class T>
inline void store(T* to, vec<T> v) {
  std::memcpy(to, &v, sizeof v);
}

// The first `count` entries, fewer than a register holds; the others are zero, or stay as they were.
template <class T>
inline vec<T> load_some(const T* from, int count) {
  vec<T> v{};
  for (int lane = 0; lane < count; ++lane) v[lane] = from[lane];
  return v;
}

template <class T>
inline void store_some(T* to, vec<T> v, int count) {
  for (int lane = 0; lane < count; ++lane) to[lane] = v[lane];
}

#if VSDN_BYTES == 64
template <>
inline vec<float> load_some(const float* from, int count) {
  return (vec<float>)_mm512_maskz_loadu_ps((1u << count) - 1, from);
}

template <>
inline void store_some(float* to, vec<float> v, int count) {
  _mm512_mask_storeu_ps(to, (1u << count) - 1, (__m512)v);
}
#endif

template <class T>
inline void copy(const T* from, T* to, int count) {
  int c = 0;
  for (; c + Lanes<T>::count <= count; c += Lanes<T>::count) store(to + c, load(from + c));
  if (c < count) store_some<T>(to + c, load_some<T>(from + c, count - c), count - c);
}

template <class T>
inline vec<T> fill(T x) {
  return x - vec<T>{};  // a plain broadcast: x - 0 is x, whatever x is
}

template <class T>
inline T sum(vec<T> v) {
  T total = 0;
  for (int lane = 0; lane < Lanes<T>::count; ++lane) total += v[lane];
  return total;
}

// 1 / v: in single precision from the processor's estimate and one step of Newton's, within two units of the last place.
inline vec<float> reciprocal(vec<float> v) {
#if VSDN_BYTES == 64
  vec<float> guess = (vec<float>)_mm512_rcp14_ps((__m512)v);
  return guess * (2.0f - v * guess);
#else
  return 1.0f / v;
#endif
}

inline vec<double> reciprocal(vec<double> v) { return 1.0 / v; }

// 2^v for v <= 80, by the polynomial of degree 5 through 2^f at the Chebyshev nodes of |f| <= 1/2: within 1e-7 of it.
inline vec<float> power_of_two(vec<float> v) {
#if VSDN_BYTES == 64
  const vec<float> whole = (vec<float>)_mm512_roundscale_ps((__m512)v, _MM_FROUND_TO_NEAREST_INT);
  const vec<float> f = v - whole;
#else
  typedef int32_t ints __attribute__((vector_size(VSDN_BYTES)));
  v = v < fill(-80.0f) ? fill(-80.0f) : v;  // lets NaN through
  const float shift = 12582912.0f;          // 1.5 * 2^23: adding it leaves the nearest whole number in the low bits
  const vec<float> whole = v + shift;
  const vec<float> f = v - (whole - shift);
#endif
  vec<float> p = fill(0.00133908634f);
  p = p * f + 0.00967603192f;
  p = p * f + 0.0555035711f;
  p = p * f + 0.240221075f;
  p = p * f + 0.693147188f;
  p = p * f + 1.00000008f;
#if VSDN_BYTES == 64
  return (vec<float>)_mm512_scalef_ps((__m512)p, (__m512)whole);
#else
  return (vec<float>)((ints)p + ((ints)whole << 23));
#endif
}

// 1 / (1 + e^-v)
inline vec<float> logistic(vec<float> v) {
  vec<float> power = v * -1.44269504f;
#if VSDN_BYTES == 64
  power = (vec<float>)_mm512_min_ps(_mm512_set1_ps(80.0f), (__m512)power);  // in this order it lets NaN through
#else
  power = power > fill(80.0f) ? fill(80.0f) : power;
#endif
  return reciprocal(1.0f + power_of_two(power));
}

inline vec<double> logistic(vec<double> v) {
  for (int lane = 0; lane < Lanes<double>::count; ++lane) v[lane] = 1 / (1 + std::exp(-v[lane]));
  return v;
}

struct Tanh {
  static vec<float> value(vec<float> z) { return 2.0f * logistic(2.0f * z) - 1.0f; }
  static vec<double> value(vec<double> z) {
    for (int lane = 0; lane < Lanes<double>::count; ++lane) z[lane] = std::tanh(z[lane]);
    return z;
  }
  template <class V>
  static V slope(V, V a) {
    return 1 - a * a;
  }
};

struct Relu {
  template <class V>
  static V value(V z) {
    return z > 0 ? z : V{} * z;  // NaN stays NaN
  }
  template <class V>
  static V slope(V z, V) {
    return z > 0 ? V{} + 1 : V{};
  }
};

struct Silu {
  template <class V>
  static V value(V z) {
    return z * logistic(z);
  }
  template <class V>
  static V slope(V z, V) {
    const V s = logistic(z);
    return s * (1 + z * (1 - s));
  }
};

}  // namespace VSDN_ISA
