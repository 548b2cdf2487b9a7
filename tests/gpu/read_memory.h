// The measure of a reader: the sum over memory, 16 bytes a lane, every multiprocessor busy.
#pragma once

#include "kernels/cuda/cuda_context.h"

namespace assay {

// out [4096] gets the sums of the blocks.
void launch_read(CudaContext& context, const float* from, int64_t count, float* out);

}  // namespace assay
