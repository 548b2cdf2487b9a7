// The bounds against reference values: the project's own (bounds.json, reference.json by make_reference.py) and the
// independent implementation. Double within 1e-9 and never below; float never below double and within 0.2 %.
#include "kernels/kv/bounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/certify/independent.h"

namespace assay::kv {
namespace {

using independent::Real;
using independent::Tokens;

// One list of a file of reference values. By value: what a loop ranges over must outlive the file.
nlohmann::json load(const std::string& name, const char* list) {
  std::ifstream file(std::string(ASSAY_TEST_DATA) + "/bounds/" + name);
  EXPECT_TRUE(file.good()) << name;
  nlohmann::json entries = nlohmann::json::parse(file).at(list);
  EXPECT_FALSE(entries.empty()) << list;
  return entries;
}

Real real(const nlohmann::json& text) {
  return std::strtold(text.get<std::string>().c_str(), nullptr);
}
double number(const nlohmann::json& text) {
  return std::strtod(text.get<std::string>().c_str(), nullptr);
}

float up(double x) {
  const float nearest = static_cast<float>(x);
  return static_cast<double>(nearest) >= x ? nearest : std::nextafter(nearest, INFINITY);
}

// Never below, at most `relative` and `absolute` above.
template <class T>
void expect_close_above(T value, Real exact, Real relative, Real absolute) {
  EXPECT_GE(static_cast<Real>(value), exact);
  EXPECT_LE(static_cast<Real>(value), exact * (1 + relative) + absolute) << static_cast<double>(exact);
}

template <class T>
T worst_of(const std::vector<double>& mass, const std::vector<double>& radius) {
  std::vector<PageRadius<T>> pages;
  for (size_t i = 0; i < mass.size(); ++i) pages.push_back({static_cast<T>(mass[i]), static_cast<T>(up(radius[i]))});
  if constexpr (std::is_same_v<T, double>) {
    for (size_t i = 0; i < mass.size(); ++i) pages[i].radius = radius[i];
  }
  sort_by_radius(pages.data(), static_cast<int>(pages.size()));
  // Masses of the float case were rounded from the double ones: relative error 2^-24.
  return page_worst_case(pages.data(), static_cast<int>(pages.size()), std::is_same_v<T, double> ? T(0) : T(0x1p-24f));
}

constexpr Real kFloatRelative = 0.002L, kFloatAbsolute = 0x1p-19L;

TEST(GoldenBounds, BoxOfGrowthAndRadius) {
  for (const auto& entry : load("bounds.json", "box")) {
    const double a = entry["A"], c = entry["C"], f = entry["F"];
    const double value = box_bound(a - 1, c);
    EXPECT_NEAR(value, f, 1e-9) << a << " " << c;
    const float in_float = box_bound(up(a - 1), up(c));
    EXPECT_GE(in_float, value);
    expect_close_above(in_float, f, kFloatRelative, kFloatAbsolute);
  }
}

TEST(GoldenBounds, BoxWithSecondMoment) {
  for (const auto& entry : load("bounds.json", "box_sigma")) {
    const double a = entry["A"], c = entry["C"], sigma = entry["sigma"], g = entry["G"];
    const double value = box_bound(a - 1, c, sigma);
    EXPECT_NEAR(value, g, 1e-9) << a << " " << c << " " << sigma;
    const float in_float = box_bound(up(a - 1), up(c), up(sigma));
    EXPECT_GE(in_float, value);
    expect_close_above(in_float, g, kFloatRelative, kFloatAbsolute);
  }
}

TEST(GoldenBounds, ExactWorstCase) {
  for (const auto& entry : load("bounds.json", "exact")) {
    const auto mass = entry["mass"].get<std::vector<double>>();
    const auto radius = entry["radius"].get<std::vector<double>>();
    const double value = worst_of<double>(mass, radius);
    EXPECT_NEAR(value, entry["tv"].get<double>(), 1e-9);
    EXPECT_GE(worst_of<float>(mass, radius), value);
    expect_close_above(worst_of<float>(mass, radius), entry["tv"].get<double>(), kFloatRelative, kFloatAbsolute);
  }
}

TEST(FiftyDigits, BoxAndItsNeighbours) {
  for (const auto& entry : load("reference.json", "box")) {
    const double b1 = number(entry["b1"]), c = number(entry["c"]);
    const double sigma = entry.contains("sigma") ? number(entry["sigma"]) : INFINITY;
    const Real exact = real(entry["value"]);
    expect_close_above(box_bound(b1, c, sigma), exact, 2e-12L, 1e-13L);
    expect_close_above(box_bound(up(b1), up(c), up(sigma)), exact, kFloatRelative, kFloatAbsolute);
    expect_close_above(e_form(b1), real(entry["e_form"]), 1e-14L, 0);
    expect_close_above(one_minus_inverse(b1), real(entry["one_minus_inverse"]), 1e-14L, 0);
    expect_close_above(tanh_half(c), real(entry["tanh_half"]), 1e-14L, 0);
    expect_close_above(tanh_full(c), real(entry["tanh_full"]), 1e-14L, 0);
    expect_close_above(e_form(up(b1)), real(entry["e_form"]), 2e-6L, 0);
    expect_close_above(one_minus_inverse(up(b1)), real(entry["one_minus_inverse"]), 2e-6L, 0);
    expect_close_above(tanh_half(up(c)), real(entry["tanh_half"]), 2e-6L, 0);
    expect_close_above(tanh_full(up(c)), real(entry["tanh_full"]), 2e-6L, 0);
  }
}

TEST(FiftyDigits, WorstCaseAndTwoSided) {
  for (const auto& entry : load("reference.json", "worst")) {
    std::vector<double> mass, radius;
    for (const auto& m : entry["mass"]) mass.push_back(number(m));
    for (const auto& c : entry["radius"]) radius.push_back(number(c));
    expect_close_above(worst_of<double>(mass, radius), real(entry["value"]), 1e-13L, 2e-12L);
    expect_close_above(worst_of<float>(mass, radius), real(entry["value"]), kFloatRelative, kFloatAbsolute);
    double total = 0, b1 = 0, deficit = 0;
    for (double m : mass) total += m;
    for (size_t i = 0; i < mass.size(); ++i) {
      b1 += mass[i] / total * std::expm1(radius[i]);
      deficit -= mass[i] / total * std::expm1(-radius[i]);
    }
    const double raise = 1 + 1e-15 * static_cast<double>(mass.size());
    EXPECT_GE(two_sided(b1 * raise, deficit * raise), real(entry["two_sided"]));
    const auto expected = static_cast<double>(real(entry["two_sided"]));
    EXPECT_NEAR(two_sided(b1, deficit), expected, 1e-10 * expected);
  }
}

Tokens random_tokens(std::mt19937_64& rng, size_t count) {
  std::uniform_real_distribution<double> uniform;
  Tokens tokens;
  Real total = 0;
  const double peak = uniform(rng) < 0.5 ? 1 : 12, reach = std::pow(10.0, 3 * uniform(rng) - 2);
  for (size_t i = 0; i < count; ++i) {
    tokens.emplace_back(std::pow(uniform(rng), peak) + 1e-12, uniform(rng) < 0.15 ? 0.0 : reach * uniform(rng));
    total += tokens.back().first;
  }
  for (auto& token : tokens) token.first /= total;
  return tokens;
}

double worst_of(const Tokens& tokens) {
  std::vector<double> mass, radius;
  for (const auto& [weight, c] : tokens) {
    mass.push_back(static_cast<double>(weight));
    radius.push_back(static_cast<double>(c));
  }
  return worst_of<double>(mass, radius);
}

TEST(Independent, WorstCaseIsTheSearchOverSetsWithOneFraction) {
  std::mt19937_64 rng(7);
  for (int trial = 0; trial < 150; ++trial) {
    const Tokens tokens = random_tokens(rng, 1 + rng() % 6);
    expect_close_above(worst_of(tokens), independent::worst_over_fractions(tokens), 1e-12L, 3e-12L);
  }
}

TEST(Independent, BoxIsTheSearchOverMassAndShare) {
  std::mt19937_64 rng(8);
  for (int trial = 0; trial < 150; ++trial) {
    const Tokens tokens = random_tokens(rng, 2 + rng() % 6);
    const Real a = independent::mean_growth(tokens), c = independent::largest_radius(tokens);
    if (c > 39) continue;
    const Real sigma = trial % 3 == 0 ? Real{INFINITY} : independent::deviation(tokens);
    const Real exact = independent::worst_in_box(a, c, sigma);
    const double value = box_bound(static_cast<double>(a - 1) * (1 + 1e-15), static_cast<double>(c) * (1 + 1e-15),
                                   static_cast<double>(sigma) * (1 + 1e-15));
    expect_close_above(value, exact, 1e-8L, 1e-10L);  // the search comes within 1e-8 from below
  }
}

TEST(Independent, OrderOfTheBounds) {
  std::mt19937_64 rng(9);
  for (int trial = 0; trial < 2000; ++trial) {
    const Tokens tokens = random_tokens(rng, 2 + rng() % 9);
    const double b1 = static_cast<double>(independent::mean_growth(tokens) - 1);
    const double c = static_cast<double>(independent::largest_radius(tokens));
    const double f = box_bound(b1, c), g = box_bound(b1, c, static_cast<double>(independent::deviation(tokens)));
    const double slack = 1 + 1e-9;
    EXPECT_LE(worst_of(tokens), g * slack + 1e-9);
    EXPECT_LE(g, f * slack);
    EXPECT_LE(f, tanh_half(c) * slack + 1e-9);
    EXPECT_LE(f, one_minus_inverse(b1) * slack + 1e-9);
    EXPECT_LE(one_minus_inverse(b1), e_form(b1) * slack);
    EXPECT_LE(tanh_half(c), tanh_full(c) * slack);
  }
}

TEST(Bounds, EqualRadiiGiveHalfOfWhatTheEFormGives) {
  std::vector<double> mass(1000, 1.0), radius(1000, 0.01);
  EXPECT_NEAR(worst_of<double>(mass, radius), std::tanh(0.005), 1e-11);
  EXPECT_NEAR(e_form(std::expm1(0.01)) / worst_of<double>(mass, radius), 2.0, 0.03);
}

TEST(Bounds, RisingInEveryInput) {
  std::mt19937_64 rng(10);
  std::uniform_real_distribution<double> uniform;
  for (int trial = 0; trial < 20000; ++trial) {
    const double c = std::pow(10.0, 4 * uniform(rng) - 3), b1 = std::expm1(c) * std::pow(uniform(rng), 4) + 1e-9;
    const double sigma = std::sqrt(b1 * std::expm1(c)) * uniform(rng);
    const double here = box_bound(b1, c, sigma), slack = 1e-12 * here + 2e-13;
    EXPECT_GE(box_bound(b1 * 1.01, c, sigma), here - slack);
    EXPECT_GE(box_bound(b1, c * 1.01, sigma), here - slack);
    EXPECT_GE(box_bound(b1, c, sigma * 1.01), here - slack);
  }
}

TEST(Meter, WhatIsNotFiniteFiresEveryThreshold) {
  const float bad[] = {NAN, INFINITY, -NAN};
  for (BoundKind kind : {BoundKind::kBest, BoundKind::kBox, BoundKind::kEForm, BoundKind::kTanh}) {
    for (float x : bad) {
      EXPECT_TRUE(fires(meter(MeterInputs<float>{x, 0.1f, 0.1f}, kind, 0.0f), 1e30f));
      EXPECT_TRUE(fires(meter(MeterInputs<float>{0.1f, x, 0.1f}, kind, 0.0f), 1e30f));
      EXPECT_TRUE(fires(meter(MeterInputs<float>{0.1f, 0.1f, x}, kind, 0.0f), 1e30f));
    }
  }
  for (float x : bad) {
    for (int field = 0; field < 2; ++field) {
      MeterSums<float> sums;
      add_token(sums, 1.0f, 0.01f, 0.0f);
      add_token(sums, field == 0 ? x : 2.0f, field == 1 ? x : 0.01f, 0.0f);
      add_token(sums, 3.0f, 0.01f, 0.0f);
      EXPECT_TRUE(fires(meter(meter_inputs(sums, 3), BoundKind::kBest, 0.0f), 1e30f)) << x << " field " << field;
      MeterSums<float> other;
      add_token(other, 9.0f, 0.01f, 0.0f);
      EXPECT_TRUE(fires(meter(meter_inputs(merge(other, sums), 4), BoundKind::kBest, 0.0f), 1e30f));
      EXPECT_TRUE(fires(meter(meter_inputs(merge(sums, other), 4), BoundKind::kBest, 0.0f), 1e30f));
    }
  }
  EXPECT_TRUE(fires(meter(meter_inputs(MeterSums<float>{}, 1), BoundKind::kBest, 0.0f), 1e30f)) << "no token at all";
  EXPECT_TRUE(fires(Meter<float>{NAN, NAN}, 0.2f));
  const PageRadius<float> infinite[] = {{0.5f, INFINITY}, {0.5f, 0.1f}}, nan[] = {{0.5f, NAN}};
  EXPECT_EQ(page_worst_case(infinite, 2, 0.0f), 1.0f);
  EXPECT_EQ(page_worst_case(nan, 1, 0.0f), 1.0f);
  EXPECT_TRUE(!(value_meter(NAN, 1.0f) <= 0.05f));
  EXPECT_TRUE(!(value_meter(1.0f, 0.0f) <= 0.05f));
}

TEST(Meter, SaturatesAboveForty) {
  const Meter<float> huge = meter(MeterInputs<float>{1e-3f, 1e-3f, 40.5f}, BoundKind::kBest, 0.0f);
  EXPECT_EQ(huge.tv, 1.0f);
  EXPECT_GE(huge.raw, 1.0f);
  EXPECT_EQ(box_bound(1.0, 41.0), 1.0);
  EXPECT_LT(box_bound(1.0, 40.0), 0.51);
}

TEST(Meter, CertifiedValueAndRiskScoreAreToldApart) {
  const Meter<float> low = meter(MeterInputs<float>{0.1f, 0.05f, 0.2f}, BoundKind::kBest, 0.0f);
  EXPECT_EQ(low.tv, low.raw);
  EXPECT_LT(low.tv, 0.06f);
  const Meter<float> high = meter(MeterInputs<float>{9.0f, 3.0f, 3.0f}, BoundKind::kEForm, 0.0f);
  EXPECT_EQ(high.tv, 1.0f);
  EXPECT_NEAR(high.raw, 49.5f, 1e-3f);
  EXPECT_FALSE(fires(high, 50.0f));
  EXPECT_TRUE(fires(high, 5.0f));
  const Meter<float> rounded = meter(MeterInputs<float>{0.1f, 0.05f, 0.2f}, BoundKind::kBest, 0x1p-11f);
  EXPECT_NEAR(rounded.tv - low.tv, 0x1p-12f, 1e-7f);
}

TEST(Merge, SplitsGiveTheSameSumsAsOnePass) {
  std::mt19937_64 rng(11);
  std::normal_distribution<double> normal;
  MeterSums<double> whole, parts[5];
  for (int t = 0; t < 400; ++t) {
    const double logit = 6 * normal(rng), radius = std::fabs(normal(rng)), rho = std::fabs(normal(rng));
    add_token(whole, logit, radius, rho);
    add_token(parts[rng() % 4], logit, radius, rho);  // the fifth stays empty
  }
  MeterSums<double> merged;
  for (const auto& part : parts) merged = merge(merged, part);
  EXPECT_EQ(merged.logit_max, whole.logit_max);
  EXPECT_EQ(merged.radius_max, whole.radius_max);
  EXPECT_NEAR(merged.weight / whole.weight, 1, 1e-13);
  EXPECT_NEAR(merged.b1 / whole.b1, 1, 1e-13);
  EXPECT_NEAR(merged.b2 / whole.b2, 1, 1e-13);
  EXPECT_NEAR(merged.value_error / whole.value_error, 1, 1e-13);
}

TEST(Pages, GroupingByTheLargestRadiusOnlyLoosens) {
  std::mt19937_64 rng(12);
  for (int trial = 0; trial < 2000; ++trial) {
    const Tokens tokens = random_tokens(rng, 48);
    std::vector<PageRadius<double>> pages(3, {0, 0});
    for (size_t i = 0; i < tokens.size(); ++i) {
      pages[i / 16].mass += static_cast<double>(tokens[i].first);
      pages[i / 16].radius = std::max(pages[i / 16].radius, static_cast<double>(tokens[i].second));
    }
    sort_by_radius(pages.data(), 3);
    EXPECT_GE(page_worst_case(pages.data(), 3, 1e-15), worst_of(tokens) - 1e-11);
  }
}

TEST(Pages, SortIsDescendingForEveryCount) {
  std::mt19937_64 rng(13);
  for (int count = 0; count < 200; ++count) {
    std::vector<PageRadius<float>> pages;
    for (int i = 0; i < count; ++i) pages.push_back({static_cast<float>(i), static_cast<float>(rng() % 50)});
    sort_by_radius(pages.data(), count);
    double masses = 0;
    for (int i = 0; i < count; ++i) {
      masses += pages[static_cast<size_t>(i)].mass;
      const size_t before = static_cast<size_t>(i > 0 ? i - 1 : 0);
      EXPECT_LE(pages[static_cast<size_t>(i)].radius, pages[before].radius);
    }
    EXPECT_EQ(masses, count * (count - 1) / 2.0);
  }
}

// Zeroing the radii of pages read exactly under the *old* weights is unsound: two tokens, p^ = (1/2, 1/2), the first of
// radius and error 1 and read back, the second of radius 0.001.
TEST(Gate, OldWeightsWithZeroedRadiiWouldBeUnsound) {
  const PageRadius<double> zeroed[] = {{0.5, 0.001}, {0.5, 0.0}};
  const double claimed = page_worst_case(zeroed, 2, 0.0);
  const Real truth = independent::total_variation({{0.5L, 1.0L}, {0.5L, 0.001L}}, {1.0L, 0.0L});
  EXPECT_LT(claimed, 0.001);
  EXPECT_GT(truth, 0.2L);
}

TEST(Output, BoundHoldsForRandomValues) {
  std::mt19937_64 rng(14);
  std::normal_distribution<double> normal;
  for (int trial = 0; trial < 3000; ++trial) {
    const Tokens tokens = random_tokens(rng, 12);
    std::vector<Real> errors;
    for (const auto& token : tokens) errors.push_back((rng() & 1) ? token.second : -token.second);
    Real normaliser = 0;
    for (size_t i = 0; i < 12; ++i) normaliser += tokens[i].first * std::exp(-errors[i]);
    Real difference[3] = {0, 0, 0}, largest = 0, rho_sum = 0;
    for (size_t i = 0; i < 12; ++i) {
      Real norm = 0, rho = 0;
      for (Real& y : difference) {
        const Real v = normal(rng), r = 0.01L * normal(rng);
        y += tokens[i].first * std::exp(-errors[i]) / normaliser * v - tokens[i].first * (v + r);
        norm += v * v;
        rho += r * r;
      }
      largest = std::max(largest, std::sqrt(norm));
      rho_sum += tokens[i].first * std::sqrt(rho);
    }
    const Real moved =
        std::sqrt(difference[0] * difference[0] + difference[1] * difference[1] + difference[2] * difference[2]);
    EXPECT_LE(moved, output_bound(worst_of(tokens), static_cast<double>(largest), static_cast<double>(rho_sum)));
  }
}

}  // namespace
}  // namespace assay::kv
