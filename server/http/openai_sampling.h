// The fields that both OpenAI routes share: sampling rules, stop strings, certificate, and what is not supported.
//
// Threads: pure functions. Errors: recorded in `fields`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/http/fields.h"
#include "server/service/generate_request.h"

namespace assay::http {

SamplingFields parse_sampling(Fields& fields);
std::vector<std::string> parse_stop(Fields& fields);
std::optional<CertificateOptions> parse_certificate(Fields& fields);

// Fails on fields that would change the answer and that this server does not know how to honour.
void refuse_unsupported(Fields& fields);

}  // namespace assay::http
