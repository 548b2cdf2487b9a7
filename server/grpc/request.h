// Messages of assay.v1 -> requests in text terms. Ranges and words of errors are those of HTTP: both read the same fields
// through server/service/sampling_fields.h.
//
// Threads: pure functions. Errors: InvalidArgument that names the field.
#pragma once

#include "absl/status/statusor.h"
#include "assay/v1/inference.pb.h"
#include "server/service/generate_request.h"
#include "server/service/text_service.h"

namespace assay::rpc {

// `id` of the result is empty.
absl::StatusOr<GenerateRequest> parse_generate(const v1::GenerateRequest& message);
absl::StatusOr<TokenizeRequest> parse_tokenize(const v1::TokenizeRequest& message);

}  // namespace assay::rpc
