#include "server/text/added_tokens.h"

#include <algorithm>

#include "server/text/unicode.h"
#include "server/text/utf8.h"

namespace assay {
namespace {

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t last = utf8_last_start(text);
  return is_word(utf8_next(text, last));
}

bool starts_with_word(std::string_view text) {
  size_t first = 0;
  return !text.empty() && is_word(utf8_next(text, first));
}

size_t space_before(std::string_view text, size_t end) {
  while (end > 0) {
    const size_t start = utf8_last_start(text.substr(0, end));
    size_t i = start;
    if (!is_whitespace(utf8_next(text, i))) break;
    end = start;
  }
  return end;
}

size_t space_behind(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t i = begin;
    if (!is_whitespace(utf8_next(text, i))) break;
    begin = i;
  }
  return begin;
}

}  // namespace

AddedToken AddedToken::parse(const JsonNode& node, int64_t largest_id) {
  AddedToken token;
  token.id = static_cast<int32_t>(node.at("id").integer(0, largest_id));
  token.content = node.at("content").string();
  token.special = node.flag("special", false);
  token.single_word = node.flag("single_word", false);
  token.lstrip = node.flag("lstrip", false);
  token.rstrip = node.flag("rstrip", false);
  token.normalized = node.flag("normalized", !token.special);
  return token;
}

int32_t TokenTrie::child(int32_t node, char c) const {
  for (const auto& [byte, next] : nodes_[static_cast<size_t>(node)].edges) {
    if (byte == c) return next;
  }
  return -1;
}

void TokenTrie::add(std::string_view text, int32_t index) {
  if (text.empty()) return;
  starts_[static_cast<unsigned char>(text[0])] = true;
  int32_t node = 0;
  for (const char c : text) {
    int32_t next = child(node, c);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back();
      nodes_[static_cast<size_t>(node)].edges.emplace_back(c, next);
    }
    node = next;
  }
  int32_t& slot = nodes_[static_cast<size_t>(node)].index;
  if (slot < 0) slot = index;
}

int32_t TokenTrie::longest(std::string_view text, size_t at, size_t& length) const {
  int32_t found = -1;
  int32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node < 0) break;
    if (nodes_[static_cast<size_t>(node)].index >= 0) {
      found = nodes_[static_cast<size_t>(node)].index;
      length = i + 1 - at;
    }
  }
  return found;
}

void AddedTokens::add(AddedToken token) {
  tokens_.push_back(std::move(token));
}

void AddedTokens::index(const Normalizer& normalizer) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    AddedToken& token = tokens_[i];
    Segment segment{token.content, true};
    if (token.normalized) normalizer.apply(segment);
    token.decoded = std::move(segment.text);
    (token.normalized ? normalized_ : raw_).add(token.decoded, static_cast<int32_t>(i));
  }
}

// Applies the flags of a token that was found; `last` is the end of the fragment before.
bool AddedTokens::accept(const AddedToken& token, std::string_view text, size_t last, Fragment& match) const {
  if (token.single_word && (ends_with_word(text.substr(0, match.begin)) || starts_with_word(text.substr(match.end))))
    return false;
  if (token.lstrip) match.begin = std::max(last, space_before(text, match.begin));
  if (token.rstrip) match.end = space_behind(text, match.end);
  return true;
}

std::vector<Fragment> AddedTokens::split(std::string_view text, bool normalized) const {
  const TokenTrie& trie = normalized ? normalized_ : raw_;
  std::vector<Fragment> fragments;
  size_t last = 0;
  for (size_t at = 0; !trie.empty() && at < text.size();) {
    size_t length = 0;
    const int32_t index = trie.may_start(text[at]) ? trie.longest(text, at, length) : -1;
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    Fragment match{at, at + length, token.id};
    at += length;
    if (!accept(token, text, last, match)) continue;
    if (last < match.begin) fragments.push_back({last, match.begin, -1});
    fragments.push_back(match);
    last = match.end;
  }
  if (last < text.size()) fragments.push_back({last, text.size(), -1});
  return fragments;
}

}  // namespace assay
