#include "server/text/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "server/text/added_tokens.h"
#include "server/text/bpe.h"
#include "server/text/normalizer.h"
#include "server/text/post_processor.h"
#include "server/text/pre_tokenizer.h"
#include "server/text/token_decoder.h"
#include "server/text/utf8.h"

namespace assay {
namespace {

struct Parts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe model;
  PostProcessor post_processor;
  TokenDecoder decoder;
  AddedTokens added;
};

class JsonTokenizer : public Tokenizer {
 public:
  JsonTokenizer(Parts parts, TokenizerConfig config);

  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override;
  std::unique_ptr<DecodeStream> decode_stream(bool skip_special_tokens) const override;

  std::string_view token_text(int32_t id) const override;
  std::string token_bytes(int32_t id) const override { return parts_.decoder.token_bytes(decoded(id)); }
  std::optional<int32_t> token_id(std::string_view token) const override;
  bool is_special(int32_t id) const override { return has(id) && tokens_[static_cast<size_t>(id)].special; }
  int32_t vocab_size() const override { return static_cast<int32_t>(tokens_.size()); }
  std::optional<int32_t> bos_id() const override { return bos_id_; }
  std::optional<int32_t> eos_id() const override { return eos_id_; }
  const std::string& bos_token() const override { return config_.bos_token; }
  const std::string& eos_token() const override { return config_.eos_token; }
  const std::string& pad_token() const override { return config_.pad_token; }
  const std::string& unk_token() const override { return config_.unk_token; }
  const std::string& chat_template() const override { return config_.chat_template; }

 private:
  struct TokenInfo {
    std::string_view text;
    std::string_view decoded;  // what goes into the decoder
    bool exists = false;
    bool special = false;
  };
  class Stream;

  bool has(int32_t id) const { return id >= 0 && id < vocab_size() && tokens_[static_cast<size_t>(id)].exists; }
  std::string_view decoded(int32_t id) const {
    return has(id) ? tokens_[static_cast<size_t>(id)].decoded : std::string_view();
  }
  void encode_segment(Segment segment, Bpe::Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_pieces(Segment segment, Bpe::Scratch& scratch, std::vector<int32_t>& ids) const;

  const Parts parts_;
  const TokenizerConfig config_;
  std::vector<TokenInfo> tokens_;  // by id; texts lie in parts_
  std::unordered_map<std::string_view, int32_t> added_ids_;
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
};

JsonTokenizer::JsonTokenizer(Parts parts, TokenizerConfig config)
    : parts_(std::move(parts)), config_(std::move(config)) {
  const Vocabulary& vocabulary = parts_.model.vocabulary();
  tokens_.resize(static_cast<size_t>(vocabulary.id_end()));
  for (int32_t id = 0; id < vocabulary.id_end(); ++id) {
    tokens_[static_cast<size_t>(id)] = {vocabulary.text(id), vocabulary.text(id), vocabulary.contains(id), false};
  }
  for (const AddedToken& token : parts_.added.all()) {
    const auto id = static_cast<size_t>(token.id);
    if (id >= tokens_.size()) tokens_.resize(id + 1);
    tokens_[id] = {token.content, token.decoded, true, token.special};
    added_ids_.emplace(token.content, token.id);
  }
  if (!config_.bos_token.empty()) bos_id_ = token_id(config_.bos_token);
  if (!config_.eos_token.empty()) eos_id_ = token_id(config_.eos_token);
}

std::vector<int32_t> JsonTokenizer::encode(std::string_view text, bool add_special_tokens) const {
  std::string replaced;
  if (valid_utf8_prefix(text) != text.size()) text = replaced = replace_invalid_utf8(text);
  std::vector<int32_t> ids;
  Bpe::Scratch scratch;
  for (const Fragment& fragment : parts_.added.split(text, /*normalized=*/false)) {
    if (fragment.id >= 0) {
      ids.push_back(fragment.id);
    } else {
      const std::string_view part = text.substr(fragment.begin, fragment.end - fragment.begin);
      encode_segment({std::string(part), fragment.begin == 0}, scratch, ids);
    }
  }
  return add_special_tokens ? parts_.post_processor.apply(std::move(ids)) : ids;
}

void JsonTokenizer::encode_segment(Segment segment, Bpe::Scratch& scratch, std::vector<int32_t>& ids) const {
  parts_.normalizer.apply(segment);
  for (const Fragment& fragment : parts_.added.split(segment.text, /*normalized=*/true)) {
    if (fragment.id >= 0) {
      ids.push_back(fragment.id);
    } else {
      const bool at_origin = segment.at_origin && fragment.begin == 0;
      encode_pieces({segment.text.substr(fragment.begin, fragment.end - fragment.begin), at_origin}, scratch, ids);
    }
  }
}

void JsonTokenizer::encode_pieces(Segment segment, Bpe::Scratch& scratch, std::vector<int32_t>& ids) const {
  Pieces pieces(std::move(segment));
  parts_.pre_tokenizer.apply(pieces);
  for (const Piece& piece : pieces.list) parts_.model.encode(pieces.view(piece), scratch, ids);
}

class JsonTokenizer::Stream : public DecodeStream {
 public:
  Stream(const JsonTokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), chain_(tokenizer.parts_.decoder), skip_special_tokens_(skip_special_tokens) {}

  void push(int32_t id, std::string& out) override {
    if (!tokenizer_.has(id) || (skip_special_tokens_ && tokenizer_.is_special(id))) return;
    chain_.push(tokenizer_.decoded(id), out);
  }
  void finish(std::string& out) override { chain_.finish(out); }

 private:
  const JsonTokenizer& tokenizer_;
  TokenDecoder::Chain chain_;
  bool skip_special_tokens_;
};

std::unique_ptr<DecodeStream> JsonTokenizer::decode_stream(bool skip_special_tokens) const {
  return std::make_unique<Stream>(*this, skip_special_tokens);
}

std::string JsonTokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  Stream stream(*this, skip_special_tokens);
  std::string out;
  for (const int32_t id : ids) stream.push(id, out);
  stream.finish(out);
  return out;
}

std::string_view JsonTokenizer::token_text(int32_t id) const {
  return has(id) ? tokens_[static_cast<size_t>(id)].text : std::string_view();
}

std::optional<int32_t> JsonTokenizer::token_id(std::string_view token) const {
  if (const auto added = added_ids_.find(token); added != added_ids_.end()) return added->second;
  const int32_t id = parts_.model.vocabulary().find(token);
  return id >= 0 ? std::optional(id) : std::nullopt;
}

// An added token either is in the vocabulary under the same id, or has a text and an id that nothing else has.
void check_with_vocabulary(const JsonNode& node, const AddedToken& token, const Vocabulary& vocabulary) {
  const int32_t known = vocabulary.find(token.content);
  if (known >= 0 && known != token.id) {
    node.at("id").fail(
        fmt::format("is {}, but model.vocab gives {} the id {}", token.id, in_quotes(token.content), known));
  }
  if (known < 0 && vocabulary.contains(token.id)) {
    node.at("id").fail(fmt::format("{} is taken by {} of model.vocab", token.id, in_quotes(vocabulary.text(token.id))));
  }
}

void parse_added(const JsonNode& list, Parts& parts) {
  std::unordered_set<std::string> texts;
  std::unordered_set<int32_t> ids;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonNode node = list.item(i);
    AddedToken token = AddedToken::parse(node, Bpe::kLargestId);
    check_with_vocabulary(node, token, parts.model.vocabulary());
    if (!texts.insert(token.content).second)
      node.at("content").fail(fmt::format("{} is there twice", in_quotes(token.content)));
    if (!ids.insert(token.id).second) node.at("id").fail(fmt::format("{} is there twice", token.id));
    parts.added.add(std::move(token));
  }
}

int32_t largest_id(const Parts& parts) {
  int32_t largest = parts.model.vocabulary().id_end() - 1;
  for (const AddedToken& token : parts.added.all()) largest = std::max(largest, token.id);
  return largest;
}

Parts parse_parts(const JsonNode& root) {
  Parts parts;
  root.require_object();
  parts.model = Bpe::parse(root.at("model"));
  if (const auto node = root.find("normalizer")) parts.normalizer = Normalizer::parse(*node);
  if (const auto node = root.find("pre_tokenizer")) parts.pre_tokenizer = PreTokenizer::parse(*node);
  if (const auto node = root.find("added_tokens")) parse_added(*node, parts);
  parts.added.index(parts.normalizer);
  if (const auto node = root.find("post_processor"))
    parts.post_processor = PostProcessor::parse(*node, largest_id(parts));
  if (const auto node = root.find("decoder")) parts.decoder = TokenDecoder::parse(*node);
  return parts;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> parse_tokenizer_json(std::string_view tokenizer_json,
                                                                      TokenizerConfig config) {
  try {
    const auto root = nlohmann::json::parse(tokenizer_json);
    return std::make_shared<const JsonTokenizer>(parse_parts(JsonNode(root, "tokenizer.json")), std::move(config));
  } catch (const nlohmann::json::parse_error& error) {
    return absl::InvalidArgumentError(fmt::format("tokenizer.json: is not JSON near byte {}", error.byte));
  } catch (const nlohmann::json::out_of_range&) {
    return absl::InvalidArgumentError("tokenizer.json: holds a number that is too large");
  } catch (const LoadError& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

}  // namespace assay
