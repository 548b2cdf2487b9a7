// Fuzzes chat templates: template source, a zero byte, JSON variables. Build with clang++ -fsanitize=fuzzer,address;
// the unit tests run the corpus in tests/fuzz/corpus/chat_template.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string_view>

#include <nlohmann/json.hpp>

#include "server/text/template/content_parts.h"
#include "server/text/template/lexer.h"
#include "server/text/template/parser.h"
#include "server/text/template/render.h"

namespace {

// Small enough that any one input is done in a moment.
assay::jinja::Limits small_limits() {
  assay::jinja::Limits limits;
  limits.max_steps = 100'000;
  limits.max_output_bytes = 1 << 20;
  limits.max_created_bytes = 16 << 20;
  return limits;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(input.find('\0'), input.size());
  const std::string_view json = input.substr(std::min(zero + 1, input.size()));
  const auto variables = nlohmann::ordered_json::parse(json.begin(), json.end(), nullptr, false);
  try {
    const auto body = assay::jinja::parse_template(input.substr(0, zero));
    assay::jinja::iterates_content(body);
    const bool usable = variables.is_object();
    (void)assay::jinja::render(body, usable ? variables : nlohmann::ordered_json::object(), small_limits(), std::tm{});
  } catch (const assay::jinja::ParseError&) {
    // The one way for a template to be refused.
  }
  return 0;
}
