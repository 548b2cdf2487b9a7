// Hostile rows of one head, and the rotation in double, element by element from its definition.
//
// Threads: plain functions. Errors: none.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/verify/tally.h"

namespace assay {

constexpr int kVerifiedHeadDims[] = {16, 64, 128};

// Gaussian, massive channels, one channel, all equal, two magnitudes, signs only; sizes 1e-8 to 1e4.
std::vector<float> hostile_row(TrialRandom& random, int head_dim);
// Of balance: positive, spread over decades.
std::vector<float> hostile_lambda(TrialRandom& random, int head_dim);

long double dot(const std::vector<float>& a, const std::vector<float>& b);
long double norm(const std::vector<double>& x);

// R x, and R^T x, R = H D / sqrt(d), D = diag(signs).
std::vector<double> rotated(const std::vector<float>& signs, const std::vector<double>& x);
std::vector<double> rotated_back(const std::vector<float>& signs, const std::vector<double>& x);

}  // namespace assay
