#include "server/text/token_filters.h"

#include "server/text/byte_level.h"
#include "server/text/utf8.h"

namespace assay {
namespace {

class Sink : public TokenFilter {
 public:
  explicit Sink(std::string& out) : out_(out) {}
  void text(std::string_view part) override { out_.append(part); }
  void end_token() override {}
  void finish() override {}

 private:
  std::string& out_;
};

// A filter whose tokens pass through one for one unless it says otherwise.
class PassingFilter : public TokenFilter {
 public:
  explicit PassingFilter(TokenFilter& next) : next_(next) {}
  void end_token() override { next_.end_token(); }
  void finish() override { next_.finish(); }

 protected:
  TokenFilter& next_;
};

class SpaceFilter : public PassingFilter {
 public:
  using PassingFilter::PassingFilter;
  void text(std::string_view part) override {
    if (between_) next_.text(" ");
    between_ = false;
    next_.text(part);
  }
  void end_token() override {
    between_ = true;
    next_.end_token();
  }

 private:
  bool between_ = false;
};

class FuseFilter : public PassingFilter {
 public:
  using PassingFilter::PassingFilter;
  void text(std::string_view part) override { next_.text(part); }
  void end_token() override {}
  void finish() override {
    next_.end_token();
    next_.finish();
  }
};

// All tokens become bytes, all bytes one text.
class ByteLevelFilter : public PassingFilter {
 public:
  using PassingFilter::PassingFilter;
  void text(std::string_view part) override { token_.append(part); }
  void end_token() override {
    std::string out;
    assembler_.push(byte_level_bytes(token_), out);
    token_.clear();
    next_.text(out);
  }
  void finish() override {
    std::string out;
    assembler_.finish(out);
    next_.text(out);
    next_.end_token();
    next_.finish();
  }

 private:
  std::string token_;
  Utf8Assembler assembler_;
};

// A run of byte tokens becomes one token.
class ByteFallbackFilter : public PassingFilter {
 public:
  using PassingFilter::PassingFilter;
  void text(std::string_view part) override { token_.append(part); }
  void end_token() override {
    if (const auto byte = fallback_byte(token_)) {
      std::string out;
      assembler_.push({&*byte, 1}, out);
      in_run_ = true;
      next_.text(out);
    } else {
      end_run();
      next_.text(token_);
      next_.end_token();
    }
    token_.clear();
  }
  void finish() override {
    end_run();
    next_.finish();
  }

 private:
  void end_run() {
    if (!in_run_) return;
    in_run_ = false;
    std::string out;
    assembler_.finish(out);
    next_.text(out);
    next_.end_token();
  }

  std::string token_;
  Utf8Assembler assembler_;
  bool in_run_ = false;
};

// Looks at whole tokens.
class ReplaceFilter : public PassingFilter {
 public:
  ReplaceFilter(const TokenDecoder::Replace& step, TokenFilter& next) : PassingFilter(next), step_(step) {}
  void text(std::string_view part) override { token_.append(part); }
  void end_token() override {
    next_.text(step_.pattern.replace(token_, step_.content));
    next_.end_token();
    token_.clear();
  }

 private:
  const TokenDecoder::Replace& step_;
  std::string token_;
};

// Takes up to `start` characters `content` from the start of each token and up to `stop` from its end.
class StripFilter : public PassingFilter {
 public:
  StripFilter(const TokenDecoder::Strip& step, TokenFilter& next) : PassingFilter(next), step_(step) {}
  void text(std::string_view part) override {
    std::string out;
    for (size_t i = 0; i < part.size();) {
      const char32_t c = utf8_next(part, i);
      if (c == step_.content) {
        content(out);
      } else {
        for (; held_ > 0; --held_) append_utf8(out, step_.content);
        append_utf8(out, c);
        at_start_ = false;
      }
    }
    next_.text(out);
  }
  void end_token() override {
    at_start_ = true;
    cut_ = 0;
    held_ = 0;
    next_.end_token();
  }

 private:
  void content(std::string& out) {
    if (at_start_ && cut_ < step_.start) {
      ++cut_;
    } else if (held_ < step_.stop) {
      ++held_;
    } else {
      append_utf8(out, step_.content);
    }
  }

  const TokenDecoder::Strip step_;
  bool at_start_ = true;
  size_t cut_ = 0;
  size_t held_ = 0;  // characters that go if the token ends here
};

class MetaspaceFilter : public PassingFilter {
 public:
  MetaspaceFilter(const TokenDecoder::Metaspace& step, TokenFilter& next) : PassingFilter(next), step_(step) {}
  void text(std::string_view part) override {
    std::string out;
    for (size_t i = 0; i < part.size();) {
      const char32_t c = utf8_next(part, i);
      if (c != step_.replacement) {
        append_utf8(out, c);
      } else if (!first_ || !step_.drop_first) {
        out.push_back(' ');
      }
    }
    next_.text(out);
  }
  void end_token() override {
    first_ = false;
    next_.end_token();
  }

 private:
  const TokenDecoder::Metaspace step_;
  bool first_ = true;
};

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::unique_ptr<TokenFilter> make_sink(std::string& out) {
  return std::make_unique<Sink>(out);
}
std::unique_ptr<TokenFilter> make_space_filter(TokenFilter& next) {
  return std::make_unique<SpaceFilter>(next);
}
std::unique_ptr<TokenFilter> make_byte_level_filter(TokenFilter& next) {
  return std::make_unique<ByteLevelFilter>(next);
}
std::unique_ptr<TokenFilter> make_byte_fallback_filter(TokenFilter& next) {
  return std::make_unique<ByteFallbackFilter>(next);
}
std::unique_ptr<TokenFilter> make_fuse_filter(TokenFilter& next) {
  return std::make_unique<FuseFilter>(next);
}
std::unique_ptr<TokenFilter> make_replace_filter(const TokenDecoder::Replace& step, TokenFilter& next) {
  return std::make_unique<ReplaceFilter>(step, next);
}
std::unique_ptr<TokenFilter> make_strip_filter(const TokenDecoder::Strip& step, TokenFilter& next) {
  return std::make_unique<StripFilter>(step, next);
}
std::unique_ptr<TokenFilter> make_metaspace_filter(const TokenDecoder::Metaspace& step, TokenFilter& next) {
  return std::make_unique<MetaspaceFilter>(step, next);
}

std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = hex_value(token[3]);
  const int low = hex_value(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high << 4 | low);
}

}  // namespace assay
