// Regular expressions of tokenizer.json over PCRE2 with JIT.
//
// Threads: a Regex is immutable and shared; each search makes its own Regex::Matcher. Errors: compile says what is
// wrong with the pattern. A search never fails for the length of its input: beyond the JIT stack it goes on in the
// interpreter, without limits.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace assay {

class Regex {
 public:
  static absl::StatusOr<Regex> compile(std::string_view oniguruma_pattern);

  // Finds the matches in one text, left to right, without overlap; an empty match right behind the last match is passed
  // over.
  class Matcher {
   public:
    // Both must outlive the matcher. `text` must be valid UTF-8.
    Matcher(const Regex& regex, std::string_view text);
    // Byte range [first, second) of the next match, or nothing.
    std::optional<std::pair<size_t, size_t>> next();
    // Starts over with another text.
    void reset(std::string_view text);

   private:
    bool search();
    int match_with_large_stack();
    template <auto F>
    struct Free {
      template <class T>
      void operator()(T* p) const {
        F(p);
      }
    };

    const pcre2_code* code_;
    std::string_view text_;
    size_t at_ = 0;
    std::optional<size_t> last_end_;
    std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>> data_;
    std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>> context_;
    std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>> stack_;
    bool jit_;
  };

 private:
  std::shared_ptr<const pcre2_code> code_;
  bool jit_ = false;
};

}  // namespace assay
