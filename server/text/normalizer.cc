#include "server/text/normalizer.h"

#include <fmt/format.h>

#include "server/text/byte_level.h"
#include "server/text/utf8.h"

namespace assay {
namespace {

constexpr int kDeepestSequence = 16;

constexpr char32_t kDrop = UINT32_MAX;

// Keeps the characters that `change` returns; it returns kDrop to drop one. Clears at_origin when the first one goes.
template <class F>
void map_chars(Segment& segment, F change) {
  std::string out;
  out.reserve(segment.text.size());
  for (size_t i = 0; i < segment.text.size();) {
    const bool first = i == 0;
    const char32_t c = change(utf8_next(segment.text, i));
    if (c != kDrop) append_utf8(out, c);
    if (c == kDrop && first) segment.at_origin = false;
  }
  segment.text = std::move(out);
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

char32_t nmt(char32_t c) {
  const bool control =
      (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
  const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  return control ? kDrop : space ? U' ' : c;
}

char32_t clean(char32_t c) {
  const bool blank = c == '\t' || c == '\n' || c == '\r' || is_whitespace(c);
  if (c == 0 || c == 0xFFFD || (!blank && is_other(c))) return kDrop;
  return blank ? U' ' : c;
}

struct Apply {
  Segment& segment;

  void operator()(NormalForm form) const { segment.text = normalize(segment.text, form); }
  void operator()(const Normalizer::Prepend& step) const {
    if (!segment.text.empty()) segment.text.insert(0, step.prefix);
  }
  void operator()(const Normalizer::Replace& step) const {
    if (segment.at_origin && step.content.empty()) {
      std::vector<ByteRange> matches;
      Pattern::Finder(step.pattern).find(segment.text, matches);
      segment.at_origin = matches.empty() || matches[0].begin > 0 || matches[0].end == 0;
    }
    segment.text = step.pattern.replace(segment.text, step.content);
  }
  void operator()(const Normalizer::Strip& step) const {
    std::string_view text = segment.text;
    size_t begin = 0;
    for (size_t i = 0; step.left && i < text.size() && is_whitespace(utf8_next(text, i));) begin = i;
    text.remove_prefix(begin);
    while (step.right && !text.empty()) {
      size_t last = utf8_last_start(text);
      const size_t end = last;
      if (!is_whitespace(utf8_next(text, last))) break;
      text = text.substr(0, end);
    }
    if (begin > 0) segment.at_origin = false;
    segment.text = std::string(text);
  }
  void operator()(Normalizer::Lowercase) const { segment.text = lowercase(segment.text); }
  void operator()(Normalizer::StripAccents) const {
    map_chars(segment, [](char32_t c) { return is_mark(c) ? kDrop : c; });
  }
  void operator()(Normalizer::StripNonspacing) const {
    map_chars(segment, [](char32_t c) { return is_nonspacing_mark(c) ? kDrop : c; });
  }
  void operator()(Normalizer::Nmt) const { map_chars(segment, nmt); }
  void operator()(Normalizer::ByteLevel) const {
    std::string out;
    append_byte_level(out, segment.text);
    segment.text = std::move(out);
  }
  void operator()(Normalizer::CleanText) const { map_chars(segment, clean); }
  void operator()(Normalizer::SpaceChinese) const {
    std::string out;
    for (size_t i = 0; i < segment.text.size();) {
      const char32_t c = utf8_next(segment.text, i);
      if (is_chinese(c)) out.push_back(' ');
      append_utf8(out, c);
      if (is_chinese(c)) out.push_back(' ');
    }
    segment.text = std::move(out);
  }
};

}  // namespace

Normalizer Normalizer::parse(const JsonNode& node) {
  Normalizer normalizer;
  normalizer.add(node, 0);
  return normalizer;
}

void Normalizer::add_bert(const JsonNode& node) {
  const bool lower = node.flag("lowercase", true);
  if (node.flag("clean_text", true)) steps_.push_back(CleanText{});
  if (node.flag("handle_chinese_chars", true)) steps_.push_back(SpaceChinese{});
  if (node.flag("strip_accents", lower)) {
    steps_.push_back(NormalForm::kNfd);
    steps_.push_back(StripNonspacing{});
  }
  if (lower) steps_.push_back(Lowercase{});
}

void Normalizer::add(const JsonNode& node, int depth) {
  if (depth > kDeepestSequence) node.fail("sequences are nested too deeply");
  const std::string type = node.type();
  if (type == "Sequence") {
    const JsonNode list = node.at("normalizers");
    for (size_t i = 0; i < list.size(); ++i) add(list.item(i), depth + 1);
  } else if (type == "NFC") {
    steps_.push_back(NormalForm::kNfc);
  } else if (type == "NFD") {
    steps_.push_back(NormalForm::kNfd);
  } else if (type == "NFKC") {
    steps_.push_back(NormalForm::kNfkc);
  } else if (type == "NFKD") {
    steps_.push_back(NormalForm::kNfkd);
  } else if (type == "Prepend") {
    steps_.push_back(Prepend{node.at("prepend").string()});
  } else if (type == "Replace") {
    steps_.push_back(Replace{Pattern::parse(node.at("pattern")), node.at("content").string()});
  } else if (type == "Strip") {
    steps_.push_back(Strip{node.at("strip_left").boolean(), node.at("strip_right").boolean()});
  } else if (type == "Lowercase") {
    steps_.push_back(Lowercase{});
  } else if (type == "StripAccents") {
    steps_.push_back(StripAccents{});
  } else if (type == "Nmt") {
    steps_.push_back(Nmt{});
  } else if (type == "ByteLevel") {
    steps_.push_back(ByteLevel{});
  } else if (type == "BertNormalizer") {
    add_bert(node);
  } else {
    node.at("type").fail(
        fmt::format("unknown normalizer {} (known: Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, Lowercase, "
                    "StripAccents, Nmt, "
                    "ByteLevel, BertNormalizer)",
                    in_quotes(type)));
  }
}

void Normalizer::apply(Segment& segment) const {
  for (const Step& step : steps_) std::visit(Apply{segment}, step);
}

}  // namespace assay
