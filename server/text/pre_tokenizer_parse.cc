#include <fmt/format.h>

#include "server/text/pre_tokenizer.h"
#include "server/text/unicode.h"
#include "server/text/utf8.h"

namespace assay {
namespace {

constexpr int kDeepestSequence = 16;
constexpr int64_t kLongestPiece = 1 << 20;

// The expression that ByteLevel with use_regex stands for.
constexpr std::string_view kByteLevelRegex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

SplitBehavior parse_behavior(const JsonNode& node) {
  const std::string& name = node.string();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  node.fail(
      fmt::format("unknown behavior {} (known: Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous)",
                  in_quotes(name)));
}

}  // namespace

PreTokenizer PreTokenizer::parse(const JsonNode& node) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(node, 0);
  return pre_tokenizer;
}

void PreTokenizer::add_byte_level(const JsonNode& node) {
  if (node.flag("add_prefix_space", true)) steps_.push_back(PrefixSpace{});
  if (node.flag("use_regex", true)) {
    steps_.push_back(Split{Pattern::regex(kByteLevelRegex), SplitBehavior::kIsolated, false});
  }
  steps_.push_back(ByteLevel{});
}

void PreTokenizer::add_metaspace(const JsonNode& node) {
  using Prepend = Metaspace::Prepend;
  const auto character = node.find("replacement");
  const char32_t replacement = character ? character->character() : U'\u2581';
  const bool add_prefix_space = node.flag("add_prefix_space", true);
  Prepend prepend = add_prefix_space ? Prepend::kAlways : Prepend::kNever;
  if (const auto scheme = node.find("prepend_scheme")) {
    const std::string& name = scheme->string();
    if (name != "always" && name != "first" && name != "never") {
      scheme->fail(fmt::format("must be always, first or never, is {}", in_quotes(name)));
    }
    prepend = name == "always" ? Prepend::kAlways : name == "first" ? Prepend::kFirst : Prepend::kNever;
    if (!add_prefix_space && prepend != Prepend::kNever) scheme->fail("contradicts add_prefix_space: false");
  }
  steps_.push_back(Metaspace{to_utf8(replacement), prepend});
  if (node.flag("split", true)) steps_.push_back(SplitDelimiter{replacement, SplitBehavior::kMergedWithNext});
}

void PreTokenizer::add(const JsonNode& node, int depth) {
  if (depth > kDeepestSequence) node.fail("sequences are nested too deeply");
  const std::string type = node.type();
  if (type == "Sequence") {
    const JsonNode list = node.at("pretokenizers");
    for (size_t i = 0; i < list.size(); ++i) add(list.item(i), depth + 1);
  } else if (type == "Split") {
    steps_.push_back(
        Split{Pattern::parse(node.at("pattern")), parse_behavior(node.at("behavior")), node.flag("invert", false)});
  } else if (type == "ByteLevel") {
    add_byte_level(node);
  } else if (type == "Metaspace") {
    add_metaspace(node);
  } else if (type == "Digits") {
    const bool individual = node.flag("individual_digits", false);
    steps_.push_back(SplitChars{is_numeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
  } else if (type == "Punctuation") {
    const auto behavior = node.find("behavior");
    steps_.push_back(SplitChars{is_punctuation, behavior ? parse_behavior(*behavior) : SplitBehavior::kIsolated});
  } else if (type == "Whitespace") {
    steps_.push_back(Words{});
  } else if (type == "WhitespaceSplit") {
    steps_.push_back(SplitChars{is_whitespace, SplitBehavior::kRemoved});
  } else if (type == "CharDelimiterSplit") {
    steps_.push_back(SplitDelimiter{node.at("delimiter").character(), SplitBehavior::kRemoved});
  } else if (type == "FixedLength") {
    steps_.push_back(FixedLength{static_cast<size_t>(node.at("length").integer(1, kLongestPiece))});
  } else if (type == "BertPreTokenizer") {
    steps_.push_back(SplitChars{is_whitespace, SplitBehavior::kRemoved});
    steps_.push_back(SplitChars{is_punctuation, SplitBehavior::kIsolated});
  } else {
    node.at("type").fail(
        fmt::format("unknown pre-tokenizer {} (known: Sequence, Split, ByteLevel, Metaspace, Digits, Punctuation, "
                    "Whitespace, WhitespaceSplit, "
                    "CharDelimiterSplit, FixedLength, BertPreTokenizer)",
                    in_quotes(type)));
  }
}

}  // namespace assay
