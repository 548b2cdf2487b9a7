// From radii to the meter: upper bounds of TV(p, p^) for the softmax weights p^ that are served and logit errors
// |e_t| <= c_t, and of the output's error. Every bound is rounded upwards, in float (kernels) and in double
// (reference): it is never below the exact value for the sums it is given. Proofs: docs/certificate.md.
//
// The kernels accumulate, with u = e^c, sums of p (u - 1) and p (u - 1)^2 and the largest c; never sum p u itself, so
// that small meters stay exact. In the names here: b1 = A - 1 = sum p^ (u - 1), sigma^2 = sum p^ u^2 - A^2, c = max
// c_t.
//
// Pure functions; no errors. What is not finite gives a meter of raw = +infinity, which no threshold passes.
#pragma once

#include <cmath>

#include "kernels/kv/host_device.h"

namespace assay::kv {

// How far results are raised in each arithmetic.
template <class T>
struct Raise;
template <>
struct Raise<float> {
  static constexpr float kUnit = 0x1p-24f;
  static constexpr float kExponential = 0x1p-16f;  // of a weight times e^c - 1, exponents to 126 in base 2
  static constexpr float kSum = 0x1p-21f;          // absolute, of 2^x - 1 for small x
  static constexpr float kFunction = 0x1p-20f;     // of exp, tanh and a few operations
  static constexpr float kBoxRelative = 0x1p-10f;
  static constexpr float kBoxAbsolute = 0x1p-20f;
  static constexpr int kBoxSteps = 24;
};
template <>
struct Raise<double> {
  static constexpr double kUnit = 0x1p-53;
  static constexpr double kExponential = 0x1p-42;
  static constexpr double kSum = 0x1p-60;
  static constexpr double kFunction = 0x1p-48;
  static constexpr double kBoxRelative = 0x1p-40;
  static constexpr double kBoxAbsolute = 0x1p-44;
  static constexpr int kBoxSteps = 54;
};

// Above this radius everything is reported as 1: nothing is certified there, and e^(2c) leaves float at 44.
constexpr float kLargestRadius = 40.0f;

// ---- Sums over tokens

// Sums of one query head over some tokens, relative to the largest logit among them. The default is the empty sum.
template <class T>
struct MeterSums {
  T logit_max = -T(infinity());
  T weight = 0;       // sum p
  T b1 = 0;           // sum p (u - 1)
  T b2 = 0;           // sum p (u - 1)^2
  T radius_max = 0;   // largest c; a NaN radius shows in b1
  T value_error = 0;  // sum p rho
};

// Multiplies all sums by `factor` (e^(old max - new max)).
template <class T>
ASSAY_HOST_DEVICE void rescale(MeterSums<T>& sums, T factor) {
  sums.weight *= factor;
  sums.b1 *= factor;
  sums.b2 *= factor;
  sums.value_error *= factor;
}

// Adds one token with natural-log `logit`, key radius and value radius rho.
template <class T>
ASSAY_HOST_DEVICE void add_token(MeterSums<T>& sums, T logit, T radius, T rho) {
  if (logit > sums.logit_max) {
    if (sums.weight > 0) rescale(sums, std::exp(sums.logit_max - logit));
    sums.logit_max = logit;
  }
  const T p = std::exp(logit - sums.logit_max);
  const T growth = std::expm1(radius);
  sums.weight += p;
  sums.b1 += p * growth;
  sums.b2 += p * growth * growth;
  sums.value_error += p * rho;
  sums.radius_max = max_of(sums.radius_max, radius);
}

// The sums of two disjoint sets of tokens, with the log-sum-exp weights that merge their outputs. Empty sets are
// neutral.
template <class T>
ASSAY_HOST_DEVICE MeterSums<T> merge(MeterSums<T> a, MeterSums<T> b) {
  if (b.weight == 0) return a;
  if (a.weight == 0) return b;
  const T top = max_of(a.logit_max, b.logit_max);
  rescale(a, std::exp(a.logit_max - top));
  rescale(b, std::exp(b.logit_max - top));
  a.logit_max = top;
  a.weight += b.weight;
  a.b1 += b.b1;
  a.b2 += b.b2;
  a.value_error += b.value_error;
  a.radius_max = max_of(a.radius_max, b.radius_max);
  return a;
}

// What the bounds take; each an upper bound of the exact number.
template <class T>
struct MeterInputs {
  T b1;
  T sigma;
  T c;
};

// Normalises the sums and raises them by their rounding. `serial_terms`: longest chain of additions into one
// accumulator, splits included.
template <class T>
ASSAY_HOST_DEVICE MeterInputs<T> meter_inputs(const MeterSums<T>& sums, int serial_terms) {
  const T eps = Raise<T>::kExponential + T(2) * T(serial_terms) * Raise<T>::kUnit;
  const T mean = sums.b1 / sums.weight;
  const T low = mean * (T(1) - eps);
  const T square = sums.b2 / sums.weight * (T(1) + eps) - low * low;
  const T variance = (square < 0 ? T(0) : square) + Raise<T>::kSum;  // a NaN stays
  return MeterInputs<T>{mean * (T(1) + eps) + Raise<T>::kSum, std::sqrt(variance), sums.radius_max};
}

// ---- Bounds of TV

// (A^2 - 1) / 2. Also the raw risk score: it keeps growing where nothing is certified.
template <class T>
ASSAY_HOST_DEVICE T e_form(T b1) {
  return b1 * (T(1) + b1 / T(2)) * (T(1) + Raise<T>::kFunction);
}

// 1 - 1/A for A <= 2, A^2 / (A^2 + 4) above.
template <class T>
ASSAY_HOST_DEVICE T one_minus_inverse(T b1) {
  const T a = T(1) + b1;
  const T value = b1 <= T(1) ? b1 / a : T(1) / (T(1) + (T(2) / a) * (T(2) / a));
  return value * (T(1) + Raise<T>::kFunction);
}

// (A/A- - A-/A) / 2 from b1 = A - 1 and deficit = 1 - A- = sum p^ (1 - e^-c). For comparison; no kernel sums it.
template <class T>
ASSAY_HOST_DEVICE T two_sided(T b1, T deficit) {
  const T a = T(1) + b1, low = T(1) - deficit;
  const T value = (b1 + deficit) * (a + low) / (a * low) / T(2);
  return value * (T(1) + Raise<T>::kFunction / low);
}

// tanh(c): range 2c of the errors used twice. For comparison.
template <class T>
ASSAY_HOST_DEVICE T tanh_full(T c) {
  return std::tanh(c) * (T(1) + Raise<T>::kFunction);
}

// tanh(c / 2): the odds of any set move by e^(2c) at most.
template <class T>
ASSAY_HOST_DEVICE T tanh_half(T c) {
  return std::tanh(c / T(2)) * (T(1) + Raise<T>::kFunction);
}

namespace detail {

// The function whose maximum over X in (0, 1] is the box bound: f = 1/(1+X) - 1/(1+W(X)), X the odds of the raised set.
template <class T>
struct Box {
  T a, b1, e, sigma;

  struct Point {
    T w;
    bool rising;  // f' > 0: f rises, then falls
  };

  // At X = root^2: bisecting the root saves a square root of each step.
  ASSAY_HOST_DEVICE Point at(T root) const {
    const T x = root * root;
    T h = x * e, slope = e * (a - T(2) * (e - a) * x);  // every raised token at radius c
    if (b1 + a * x < h) {                               // every other token exact
      h = b1 + a * x;
      slope = a;
    }
    if (x * a + sigma * root < h) {  // second moment
      h = x * a + sigma * root;
      slope = a * a - sigma * sigma + a * sigma * (T(0.5) / root - T(1.5) * root);
    }
    const T half = a * (T(1) + x) / T(2);
    if (half < h) return Point{half * half, false};
    const T w = h * (a * (T(1) + x) - h);
    const T ratio = (T(1) + w) / (T(1) + x);
    return Point{w, slope > ratio * ratio};
  }
};

}  // namespace detail

// G(A, C, sigma): the largest TV compatible with the three numbers (with fractional sets). sigma = +infinity gives F(A,
// C). At most Raise<T>::kBoxRelative plus the width of a bisection above it. c <= 40; larger or not finite gives 1.
template <class T>
ASSAY_HOST_DEVICE T box_bound(T b1, T c, T sigma) {
  if (!(c <= T(kLargestRadius)) || !is_finite(b1) || !(sigma >= T(0))) return T(1);
  if (!(b1 > T(0))) return Raise<T>::kBoxAbsolute;
  // A <= e^c holds for the true numbers and the proof uses it; the two are raised by different roundings, so it is restored.
  const T e = max_of(std::exp(c) * (T(1) + Raise<T>::kFunction), T(1) + b1);
  const detail::Box<T> box{T(1) + b1, b1, e, sigma};
  T low = std::sqrt(b1 / box.a / box.e) * T(0x1p-6f), high = T(1);  // roots of X
  if (!box.at(low).rising) {
    high = low;
    low = T(0);
  } else if (box.at(high).rising) {
    low = high;
  } else {
    for (int step = 0; step < Raise<T>::kBoxSteps; ++step) {
      const T middle = std::sqrt(low * high);
      (box.at(middle).rising ? low : high) = middle;
    }
  }
  const T w = box.at(high).w, x = low * low;  // W grows with X, 1/(1+X) falls: an upper bound over [low^2, high^2]
  const T value = (w - x) / ((T(1) + x) * (T(1) + w));
  return value * (T(1) + Raise<T>::kBoxRelative) + Raise<T>::kBoxAbsolute;
}

// F(A, C): without the second moment.
template <class T>
ASSAY_HOST_DEVICE T box_bound(T b1, T c) {
  return box_bound(b1, c, T(infinity()));
}

// ---- The meter

enum class BoundKind : uint8_t { kBest, kBox, kEForm, kTanh };

// A head's meter: `tv` = min(1, bound) is a certificate where it is below 1; `raw` is the same number there and the
// risk score max(1, (A^2 - 1)/2) where nothing is certified, +infinity when the sums left the arithmetic.
template <class T>
struct Meter {
  T tv;
  T raw;
};

// `weight_rounding`: largest relative error h of the weights that multiply the values (2^-11 for fp16 weights, 2^-10
// with a second rounding after the scale): it moves the output by at most h max|v|, as a TV larger by h / 2 would.
template <class T>
ASSAY_HOST_DEVICE Meter<T> meter(const MeterInputs<T>& in, BoundKind kind, T weight_rounding) {
  if (!is_finite(in.b1) || !is_finite(in.sigma) || !is_finite(in.c)) return Meter<T>{T(1), T(infinity())};
  const T risk = e_form(in.b1);
  T bound = risk;
  if (kind == BoundKind::kBox) bound = box_bound(in.b1, in.c);
  if (kind == BoundKind::kTanh) bound = tanh_half(in.c);
  if (kind == BoundKind::kBest) {
    bound = min_of(box_bound(in.b1, in.c, in.sigma), min_of(tanh_half(in.c), one_minus_inverse(in.b1)));
  }
  bound += weight_rounding / T(2);
  if (bound < T(1) && in.c <= T(kLargestRadius)) return Meter<T>{bound, bound};
  return Meter<T>{T(1), max_of(T(1), risk)};
}

// The gate's test, written so that NaN and infinity fire it. tau < 1 is a certified threshold, tau >= 1 risk-ranked.
template <class T>
ASSAY_HOST_DEVICE bool fires(const Meter<T>& m, T tau) {
  return !(m.raw <= tau);
}

// ---- Exact worst case over pages

// Served weight of a page (any common scale) and its largest radius.
template <class T>
struct PageRadius {
  T mass;
  T radius;
};

// Sorts pages by radius, descending, in place (heap sort: no allocation, same code on both sides). No NaN radii.
template <class T>
ASSAY_HOST_DEVICE void sort_by_radius(PageRadius<T>* pages, int count) {
  const auto sift = [pages](int root, int end) {
    for (int child = 2 * root + 1; child < end; root = child, child = 2 * root + 1) {
      if (child + 1 < end && pages[child + 1].radius < pages[child].radius) ++child;
      if (!(pages[child].radius < pages[root].radius)) return;
      const PageRadius<T> swap = pages[root];
      pages[root] = pages[child];
      pages[child] = swap;
    }
  };
  for (int root = count / 2 - 1; root >= 0; --root) sift(root, count);
  for (int end = count - 1; end > 0; --end) {
    const PageRadius<T> smallest = pages[0];
    pages[0] = pages[end];
    pages[end] = smallest;
    sift(0, end);
  }
}

namespace detail {

// Running sums of the worst case while pages join the raised set T one by one: U, V, P of T, its complement, its mass.
struct WorstCase {
  double u = 0, v = 0, p = 0, best = 0;

  ASSAY_HOST_DEVICE double value(double u_set, double v_rest, double mass) const {
    return u_set / (u_set + v_rest) - mass;
  }

  // A page of mass m whose fraction x in [0, 1] joins: the best fraction in closed form, then all of it.
  ASSAY_HOST_DEVICE void join(double m, double growth) {
    const double a = m * growth, b = m / growth;
    const double z = u + v;
    double x = 0;
    if (a > b) x = (std::sqrt((a * v + b * u) / m) - z) / (a - b);
    x = x > 1 ? 1 : x > 0 ? x : 0;
    const double rest = v - x * b;
    best = max_of(best, value(u + x * a, rest > 0 ? rest : 0, p + x * m));
    u += a;
    v = v > b ? v - b : 0;
    p += m;
  }
};

}  // namespace detail

// TV*: the largest TV over all errors within the pages' radii, pages taken in fractions. `pages` sorted by radius,
// descending; masses >= 0 on any common scale. `mass_error`: relative error of each mass (0 if exact). 1 for a radius
// that is not finite or above 300. Sums are double in both arithmetics.
template <class T>
ASSAY_HOST_DEVICE T page_worst_case(const PageRadius<T>* pages, int count, T mass_error) {
  double total = 0;
  for (int i = 0; i < count; ++i) {
    if (!(pages[i].radius <= T(300)) || !is_finite(pages[i].mass)) return T(1);
    total += static_cast<double>(pages[i].mass);
  }
  if (!(total > 0)) return T(1);
  detail::WorstCase worst;
  for (int i = count - 1; i >= 0; --i) {
    worst.v += static_cast<double>(pages[i].mass) / total * std::exp(-static_cast<double>(pages[i].radius));
  }
  for (int i = 0; i < count; ++i) {
    const double mass = static_cast<double>(pages[i].mass) / total;
    if (mass > 0) worst.join(mass, std::exp(static_cast<double>(pages[i].radius)));
  }
  const double rounding = 0x1p-40 + static_cast<double>(count) * 0x1p-50 + 2.0 * static_cast<double>(mass_error);
  return static_cast<T>((worst.best + rounding) * (1.0 + static_cast<double>(Raise<T>::kUnit) * 2));
}

// ---- Values and output

// sum p^ rho, raised. Same serial_terms as meter_inputs.
template <class T>
ASSAY_HOST_DEVICE T value_error(const MeterSums<T>& sums, int serial_terms) {
  const T eps = Raise<T>::kExponential + T(2) * T(serial_terms) * Raise<T>::kUnit;
  return sums.value_error / sums.weight * (T(1) + eps);
}

// The value meter: value_error relative to max |v_t|, given rounded down. 0/0 (no error, no values) is 0.
template <class T>
ASSAY_HOST_DEVICE T value_meter(T value_error, T max_value_norm_low) {
  return value_error == T(0) ? T(0) : value_error / max_value_norm_low * (T(1) + Raise<T>::kFunction);
}

// |y - y^| <= 2 TV max|v_t| + sum p^ rho; max|v_t| of exact values, rounded up.
template <class T>
ASSAY_HOST_DEVICE T output_bound(T tv, T max_value_norm, T value_error) {
  return (T(2) * tv * max_value_norm + value_error) * (T(1) + Raise<T>::kFunction);
}

}  // namespace assay::kv
