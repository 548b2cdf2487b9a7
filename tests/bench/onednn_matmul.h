// oneDNN's float32 product y [m, n] = x [m, k] w [k, n] with the weights in its own layout: the rate to be measured
// against.
#pragma once

#include <cstdint>
#include <functional>

namespace assay {

// A function that computes one product on the calling thread; empty where the build has no oneDNN.
std::function<void()> make_onednn_matmul(int64_t m, int64_t n, int64_t k);

}  // namespace assay
