// Prefill attention: the sequences of a batch behind its decodes, any number of rows each.
#pragma once

#include "kernels/cuda/attention_decode.h"

namespace assay {

void launch_prefill(CudaContext& context, const AttentionCall& call);

}  // namespace assay
