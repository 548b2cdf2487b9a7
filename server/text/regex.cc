#include "server/text/regex.h"

#include <fmt/format.h>

#include <string>

#include "server/text/regex_translate.h"
#include "server/text/utf8.h"

namespace assay {
namespace {

constexpr size_t kJitStackStart = 64 << 10;
constexpr size_t kJitStackLargest = 64 << 20;

PCRE2_SPTR bytes_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

absl::StatusOr<Regex> Regex::compile(std::string_view oniguruma_pattern) {
  const auto pattern = translate_regex(oniguruma_pattern);
  if (!pattern.ok()) return pattern.status();
  std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  pcre2_code* code = pcre2_compile(bytes_of(*pattern), pattern->size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error,
                                   &offset, context.get());
  if (code == nullptr) {
    return absl::InvalidArgumentError(fmt::format("bad regular expression \"{}\": {} near byte {}",
                                                  oniguruma_pattern.substr(0, 200), message_of(error), offset));
  }
  Regex regex;
  regex.code_ =
      std::shared_ptr<const pcre2_code>(code, [](const pcre2_code* p) { pcre2_code_free(const_cast<pcre2_code*>(p)); });
  regex.jit_ = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  return regex;
}

Regex::Matcher::Matcher(const Regex& regex, std::string_view text)
    : code_(regex.code_.get()),
      text_(text),
      data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      jit_(regex.jit_) {
  pcre2_set_match_limit(context_.get(), UINT32_MAX);
  pcre2_set_depth_limit(context_.get(), UINT32_MAX);
  pcre2_set_heap_limit(context_.get(), UINT32_MAX);
}

void Regex::Matcher::reset(std::string_view text) {
  text_ = text;
  at_ = 0;
  last_end_.reset();
}

// The JIT runs on 32 kB of machine stack at first; the few inputs that need more get a stack that grows, then the
// interpreter, which keeps its backtracking points on the heap.
int Regex::Matcher::match_with_large_stack() {
  if (!stack_) {
    stack_.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackLargest, nullptr));
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }
  const int result = pcre2_jit_match(code_, bytes_of(text_), text_.size(), at_, 0, data_.get(), context_.get());
  if (result != PCRE2_ERROR_JIT_STACKLIMIT) return result;
  return pcre2_match(code_, bytes_of(text_), text_.size(), at_, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data_.get(),
                     context_.get());
}

bool Regex::Matcher::search() {
  int result;
  if (jit_) {
    result = pcre2_jit_match(code_, bytes_of(text_), text_.size(), at_, 0, data_.get(), context_.get());
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match_with_large_stack();
  } else {
    result = pcre2_match(code_, bytes_of(text_), text_.size(), at_, PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
  }
  return result >= 0;  // one pair was offered, so 0 ("too small") is a match too
}

std::optional<std::pair<size_t, size_t>> Regex::Matcher::next() {
  while (at_ <= text_.size() && search()) {
    const size_t* range = pcre2_get_ovector_pointer(data_.get());
    const size_t start = range[0];
    const size_t end = range[1];
    if (start >= end && last_end_ == end) {
      at_ += at_ < text_.size() ? utf8_length_at(text_, at_) : 1;
      continue;
    }
    at_ = end;
    last_end_ = end;
    return std::pair{start, end};
  }
  at_ = text_.size() + 1;
  return std::nullopt;
}

}  // namespace assay
