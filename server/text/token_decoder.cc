#include "server/text/token_decoder.h"

#include <fmt/format.h>

#include "server/text/byte_level.h"
#include "server/text/token_filters.h"
#include "server/text/utf8.h"

namespace assay {
namespace {

constexpr int kDeepestSequence = 16;
constexpr int64_t kMostStripped = 1 << 16;

std::string replace_char(std::string_view text, char32_t from, char to) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = utf8_next(text, i);
    append_utf8(out, c == from ? static_cast<char32_t>(to) : c);
  }
  return out;
}

struct MakeFilter {
  TokenFilter& next;

  std::unique_ptr<TokenFilter> operator()(TokenDecoder::Space) const { return make_space_filter(next); }
  std::unique_ptr<TokenFilter> operator()(TokenDecoder::ByteLevel) const { return make_byte_level_filter(next); }
  std::unique_ptr<TokenFilter> operator()(TokenDecoder::ByteFallback) const { return make_byte_fallback_filter(next); }
  std::unique_ptr<TokenFilter> operator()(TokenDecoder::Fuse) const { return make_fuse_filter(next); }
  std::unique_ptr<TokenFilter> operator()(const TokenDecoder::Replace& step) const {
    return make_replace_filter(step, next);
  }
  std::unique_ptr<TokenFilter> operator()(const TokenDecoder::Strip& step) const {
    return make_strip_filter(step, next);
  }
  std::unique_ptr<TokenFilter> operator()(const TokenDecoder::Metaspace& step) const {
    return make_metaspace_filter(step, next);
  }
};

}  // namespace

TokenDecoder TokenDecoder::parse(const JsonNode& node) {
  TokenDecoder decoder;
  decoder.steps_.clear();
  decoder.add(node, 0);
  return decoder;
}

void TokenDecoder::add(const JsonNode& node, int depth) {
  if (depth > kDeepestSequence) node.fail("sequences are nested too deeply");
  const std::string type = node.type();
  if (type == "Sequence") {
    const JsonNode list = node.at("decoders");
    for (size_t i = 0; i < list.size(); ++i) add(list.item(i), depth + 1);
  } else if (type == "ByteLevel") {
    steps_.push_back(ByteLevel{});
  } else if (type == "ByteFallback") {
    steps_.push_back(ByteFallback{});
  } else if (type == "Fuse") {
    steps_.push_back(Fuse{});
  } else if (type == "Replace") {
    steps_.push_back(Replace{Pattern::parse(node.at("pattern")), node.at("content").string()});
  } else if (type == "Strip") {
    const auto count = [&](std::string_view key) {
      return static_cast<size_t>(node.at(key).integer(0, kMostStripped));
    };
    steps_.push_back(Strip{node.at("content").character(), count("start"), count("stop")});
  } else if (type == "Metaspace") {
    const auto replacement = node.find("replacement");
    const auto scheme = node.find("prepend_scheme");
    const bool drop_first = scheme ? scheme->string() != "never" : node.flag("add_prefix_space", true);
    steps_.push_back(Metaspace{replacement ? replacement->character() : U'\u2581', drop_first});
  } else {
    node.at("type").fail(
        fmt::format("unknown decoder {} (known: Sequence, ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace)",
                    in_quotes(type)));
  }
}

std::string TokenDecoder::token_bytes(std::string_view token) const {
  std::string bytes(token);
  for (const Step& step : steps_) {
    if (std::holds_alternative<ByteLevel>(step)) return byte_level_bytes(bytes);
    if (std::holds_alternative<ByteFallback>(step)) {
      if (const auto byte = fallback_byte(bytes)) return std::string(1, *byte);
    }
    if (const auto* replace = std::get_if<Replace>(&step)) bytes = replace->pattern.replace(bytes, replace->content);
    if (const auto* metaspace = std::get_if<Metaspace>(&step)) bytes = replace_char(bytes, metaspace->replacement, ' ');
  }
  return bytes;
}

TokenDecoder::Chain::Chain(const TokenDecoder& decoder) {
  filters_.push_back(make_sink(pending_));
  for (auto step = decoder.steps_.rbegin(); step != decoder.steps_.rend(); ++step) {
    filters_.push_back(std::visit(MakeFilter{*filters_.back()}, *step));
  }
}

void TokenDecoder::Chain::push(std::string_view token, std::string& out) {
  pending_.clear();
  filters_.back()->text(token);
  filters_.back()->end_token();
  out.append(pending_);
}

void TokenDecoder::Chain::finish(std::string& out) {
  pending_.clear();
  filters_.back()->finish();
  out.append(pending_);
}

}  // namespace assay
