// out = x W^T + bias for row-major weights used in place, whatever their dtype.
//
// Every output is one dot product over the inner dimension in vector lanes (lane i sums the products k = i mod lanes,
// in order), then a fixed sum of the lanes. No tiling choice changes that order, so a row's result does not depend on
// the others.
#pragma once

#include <span>

#include "kernels/cpu/scratch.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace assay {

void cpu_linear(ThreadPool& pool, Scratch& scratch, ConstTensor x, std::span<const LinearPart> parts, bool accumulate,
                Tensor out);

}  // namespace assay
