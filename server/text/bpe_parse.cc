#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/text/bpe.h"
#include "server/text/utf8.h"

namespace assay {
namespace {

constexpr char32_t kIndexedCharacters = 0x10000;

bool is_one_character(std::string_view text) {
  return !text.empty() && utf8_length_at(text, 0) == text.size();
}

// An empty affix means none; published files have both spellings.
void refuse_affix(const JsonNode& node, std::string_view key) {
  const auto affix = node.find(key);
  if (affix && !affix->string().empty()) affix->fail("is not supported (must be null or empty)");
}

void refuse_dropout(const JsonNode& node) {
  const auto dropout = node.find("dropout");
  if (!dropout) return;
  if (!dropout->value().is_number() || dropout->value().get<double>() != 0)
    dropout->fail("must be null or 0: serving is not random");
}

}  // namespace

Bpe Bpe::parse(const JsonNode& node) {
  node.require_object();
  if (const auto type = node.find("type"); type && type->string() != "BPE") {
    type->fail(fmt::format("unknown model {} (known: BPE)", in_quotes(type->string())));
  }
  refuse_affix(node, "continuing_subword_prefix");
  refuse_affix(node, "end_of_word_suffix");
  refuse_dropout(node);
  Bpe bpe;
  bpe.fuse_unknown_ = node.flag("fuse_unk", false);
  bpe.byte_fallback_ = node.flag("byte_fallback", false);
  bpe.ignore_merges_ = node.flag("ignore_merges", false);
  bpe.parse_vocabulary(node.at("vocab"));
  bpe.parse_unknown(node);
  bpe.index_characters();
  bpe.parse_merges(node.at("merges"));
  bpe.index_whole_tokens();
  return bpe;
}

void Bpe::parse_vocabulary(const JsonNode& vocab) {
  vocab.require_object();
  const auto id_of = [&](const auto& entry) {
    return JsonNode(entry.value(), fmt::format("{}[{}]", vocab.path(), in_quotes(entry.key())));
  };
  int64_t largest = -1;
  for (const auto& entry : vocab.value().items()) {
    const bool plain =
        entry.value().is_number_unsigned() && entry.value().template get<uint64_t>() <= uint64_t{kLargestId};
    largest = std::max(largest, plain ? entry.value().template get<int64_t>() : id_of(entry).integer(0, kLargestId));
  }
  vocabulary_.reserve(vocab.value().size(), static_cast<int32_t>(largest + 1));
  for (const auto& entry : vocab.value().items()) {
    const auto id = entry.value().template get<int32_t>();
    if (!vocabulary_.add(entry.key(), id)) {
      id_of(entry).fail(fmt::format("id {} is taken by {}", id, in_quotes(vocabulary_.text(id))));
    }
  }
}

void Bpe::parse_unknown(const JsonNode& node) {
  const auto token = node.find("unk_token");
  if (!token) return;
  unknown_id_ = vocabulary_.find(token->string());
  if (unknown_id_ < 0) token->fail(fmt::format("{} is not in the vocabulary", in_quotes(token->string())));
}

void Bpe::index_characters() {
  character_ids_.assign(kIndexedCharacters, -1);
  for (int32_t id = 0; id < vocabulary_.id_end(); ++id) {
    const std::string_view text = vocabulary_.text(id);
    if (!is_one_character(text)) continue;
    size_t end = 0;
    const char32_t c = utf8_next(text, end);
    if (c < kIndexedCharacters) character_ids_[c] = id;
  }
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte)
    byte_ids_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
}

// With ignore_merges every token counts, even one that no sequence of merges reaches.
void Bpe::index_whole_tokens() {
  std::vector<bool> whole(static_cast<size_t>(vocabulary_.id_end()));
  size_t longest = 0;
  Scratch scratch;
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocabulary_.id_end(); ++id) {
    if (!vocabulary_.contains(id)) continue;
    ids.clear();
    if (!ignore_merges_) encode(vocabulary_.text(id), scratch, ids);
    whole[static_cast<size_t>(id)] = ignore_merges_ || (ids.size() == 1 && ids[0] == id);
    if (whole[static_cast<size_t>(id)]) longest = std::max(longest, vocabulary_.text(id).size());
  }
  encodes_to_itself_ = std::move(whole);
  longest_whole_bytes_ = longest;
}

// Merges are ["left", "right"] or "left right".
void Bpe::parse_merges(const JsonNode& merges) {
  const size_t count = merges.size();
  if (count >= MergeTable::kNoRank) merges.fail("has too many entries");
  merges_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const JsonNode node = merges.item(i);
    if (node.value().is_string()) {
      const std::string_view text = node.string();
      const size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        node.fail(fmt::format("must be two tokens with one space between them, is {}", in_quotes(text)));
      }
      add_merge(node, text.substr(0, space), text.substr(space + 1), static_cast<uint32_t>(i));
    } else {
      if (node.size() != 2) node.fail("must be two tokens");
      add_merge(node, node.item(0).string(), node.item(1).string(), static_cast<uint32_t>(i));
    }
  }
}

void Bpe::add_merge(const JsonNode& node, std::string_view left, std::string_view right, uint32_t rank) {
  const auto id_of = [&](std::string_view token) {
    const int32_t id = vocabulary_.find(token);
    if (id < 0) node.fail(fmt::format("names {}, which is not in the vocabulary", in_quotes(token)));
    return id;
  };
  const int32_t left_id = id_of(left);
  const int32_t right_id = id_of(right);
  merges_.add(left_id, right_id, rank, id_of(std::string(left).append(right)));
  // The symbols that meet are the characters at the seam; a token that text can start out with whole (a byte, the
  // unknown token) is also a symbol itself.
  const std::string_view left_end = left.empty() ? left : left.substr(utf8_last_start(left));
  const std::string_view right_start = right.empty() ? right : right.substr(0, utf8_length_at(right, 0));
  for (const int32_t a : {left_id, vocabulary_.find(left_end)}) {
    for (const int32_t b : {right_id, vocabulary_.find(right_start)}) merges_.add_junction(a, b);
  }
}

}  // namespace assay
