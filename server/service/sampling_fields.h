// Fields with one name, one range and one message in every protocol: sampling rules, stop strings, certificate.
//
// Threads: pure functions. Errors: recorded in `fields`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/service/fields.h"
#include "server/service/generate_request.h"

namespace assay {

inline constexpr int32_t kMaxChoices = 128;  // n, best_of

SamplingFields parse_sampling(Fields& fields);
std::vector<std::string> parse_stop(Fields& fields);
std::optional<CertificateOptions> parse_certificate(Fields& fields);

}  // namespace assay
