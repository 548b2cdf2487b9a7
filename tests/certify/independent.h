// A second implementation of the bounds, written from docs/certificate.md alone and on purpose unlike the first: long
// double, search instead of formulas, nothing rounded in any direction. It finds maxima from below.
#pragma once

#include <utility>
#include <vector>

namespace assay::independent {

using Real = long double;
using Tokens = std::vector<std::pair<Real, Real>>;  // (served weight, radius); weights sum to 1

// The largest (A^2 - 1)/2-style quantities, straight from their definitions.
Real mean_growth(const Tokens& tokens);  // A
Real mean_shrink(const Tokens& tokens);  // A-
Real deviation(const Tokens& tokens);    // sigma
Real largest_radius(const Tokens& tokens);

// TV of p = softmax(a^ - e) against p^ for given errors.
Real total_variation(const Tokens& tokens, const std::vector<Real>& errors);

// max over all sets of tokens, none in fractions: what an adversary can really reach. At most 20 tokens.
Real worst_over_sets(const Tokens& tokens);

// max over all sets with one token in a fraction, the fraction found by ternary search. At most 12 tokens.
Real worst_over_fractions(const Tokens& tokens);

// sup of TV over everything with mean growth a, largest radius c and deviation sigma (infinite: any): a search over the
// mass of the raised set, the other numbers pushed as far as the constraints allow.
Real worst_in_box(Real a, Real c, Real sigma);

}  // namespace assay::independent
