// Behaviour that users of comparable servers found broken, on toy tokenizers.
#include <gtest/gtest.h>

#include <ctime>
#include <random>
#include <thread>

#include "server/text/detokenizer.h"
#include "server/text/utf8.h"
#include "tests/unit/text/toy_tokenizers.h"

namespace assay {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

std::vector<std::string> tokens(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> out;
  for (const int32_t id : tokenizer.encode(text, false)) out.emplace_back(tokenizer.token_text(id));
  return out;
}

using Texts = std::vector<std::string>;

json added(int id, const char* content, json flags = json::object()) {
  json token = {{"id", id}, {"content", content}, {"special", true}};
  token.update(flags);
  return token;
}

// No merges: every byte is a token, so that added tokens and cuts are easy to see.
json bytes_only(const json& patch = json::object()) {
  json root =
      toy_json("bytes", {{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
                         {"model", {{"merges", json::array()}}}});
  root.update(patch);
  return root;
}

TEST(TokenizerCases, LeadingSpaceSurvives) {
  const auto tokenizer = toy("spm");
  EXPECT_NE(tokenizer->encode("wall", false), tokenizer->encode(" wall", false));
  for (const std::string text : {"wall", " wall", "  wall", "wall "}) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, false), false), text);
  }
}

TEST(TokenizerCases, NothingIsInventedBehindASpecialToken) {
  const json metaspace = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}};
  const auto first = toy("spm", {{"normalizer", nullptr}, {"pre_tokenizer", metaspace}});
  EXPECT_EQ(tokens(*first, "a<s>. b"), (Texts{"▁a", "<s>", ".", "▁", "b"}));
  const auto prepend = toy("spm");  // the Prepend normalizer runs on each stretch of text, and says so
  EXPECT_EQ(tokens(*prepend, "a<s>. b"), (Texts{"▁a", "<s>", "▁", ".", "▁", "b"}));
}

TEST(TokenizerCases, AddedTokenFlags) {
  const json list = {added(400, "[MASK]", {{"lstrip", true}, {"rstrip", true}}),
                     added(401, "cat", {{"single_word", true}}), added(402, "<|im_start|>"),
                     added(403, "<|im_start|>x"), added(404, "[R]", {{"rstrip", true}})};
  const auto tokenizer = load_toy(bytes_only({{"added_tokens", list}})).value();
  EXPECT_EQ(tokens(*tokenizer, "a  [MASK] \tx"), (Texts{"a", "[MASK]", "x"}));
  EXPECT_EQ(tokens(*tokenizer, "[R] [MASK]a"), (Texts{"[R]", "[MASK]", "a"}));
  EXPECT_EQ(tokens(*tokenizer, "cat,cats"), (Texts{"cat", ",", "c", "a", "t", "s"}));
  EXPECT_EQ(tokens(*tokenizer, "<|im_start|>x<|im_start|>y"), (Texts{"<|im_start|>x", "<|im_start|>", "y"}));
}

TEST(TokenizerCases, NormalizedAddedTokensAreFoundInNormalizedText) {
  const json list = {added(400, "RIVER", {{"normalized", true}}), added(401, "WALL", {{"normalized", false}})};
  const auto tokenizer =
      load_toy(bytes_only({{"normalizer", {{"type", "Lowercase"}}}, {"added_tokens", list}})).value();
  EXPECT_EQ(tokenizer->encode("riverRiver", false), (Ids{400, 400}));
  EXPECT_EQ(tokenizer->encode("WALL", false), (Ids{401}));
  EXPECT_EQ(tokenizer->encode("wall", false).size(), 4u);
}

TEST(TokenizerCases, NormalizedSpecialTokensAreSkipped) {
  const json list = {added(1, "<s>", {{"normalized", true}}), added(2, "</s>", {{"normalized", true}})};
  const auto tokenizer = toy("spm", {{"added_tokens", list}});
  const Ids ids = tokenizer->encode("wall", true);
  EXPECT_EQ(ids[0], 1);
  EXPECT_EQ(tokenizer->decode(ids, false), "<s> wall");
  EXPECT_EQ(tokenizer->decode(ids, true), "wall");
  EXPECT_EQ(tokenizer->token_id("<s>"), 1);
  EXPECT_EQ(tokenizer->token_text(1), "<s>");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("wall <s>", false), false), "wall <s>");
}

TEST(TokenizerCases, NewlineIsOneByteOfTheAlphabet) {
  const auto tokenizer = load_toy(bytes_only()).value();
  const int32_t newline = tokenizer->token_id("Ċ").value();
  EXPECT_EQ(tokenizer->encode("\n", false), (Ids{newline}));
  const Ids ids{newline};
  EXPECT_EQ(tokenizer->decode(ids, false), "\n");
  EXPECT_EQ(tokenizer->token_bytes(newline), "\n");
}

TEST(TokenizerCases, TokenBytes) {
  const auto spm = toy("spm");
  EXPECT_EQ(spm->token_bytes(spm->token_id("<0xF0>").value()), "\xF0");
  EXPECT_EQ(spm->token_bytes(spm->token_id("▁the").value()), " the");
  EXPECT_EQ(spm->token_bytes(-1), "");
  EXPECT_EQ(spm->token_bytes(1 << 30), "");
}

TEST(TokenizerCases, SpecialTokensAndUnknownIds) {
  const auto tokenizer = toy("spm");
  const Ids ids{1, tokenizer->token_id("▁the").value(), 2, -5, 1'000'000};
  EXPECT_TRUE(tokenizer->is_special(1));
  EXPECT_FALSE(tokenizer->is_special(ids[1]));
  EXPECT_FALSE(tokenizer->is_special(-1));
  EXPECT_EQ(tokenizer->decode(ids, true), "the");
  EXPECT_EQ(tokenizer->decode(ids, false), "<s> the</s>");
  EXPECT_EQ(tokenizer->token_id("no such token"), std::nullopt);
}

// --- detokeniser ---

std::vector<std::string> pieces(const std::shared_ptr<const Tokenizer>& tokenizer, const Ids& ids) {
  Detokenizer detokenizer(tokenizer, false);
  std::vector<std::string> out;
  for (const int32_t id : ids) out.push_back(detokenizer.push(id));
  out.push_back(detokenizer.finish());
  return out;
}

TEST(DetokenizerCases, CharactersSplitOverTokens) {
  const auto tokenizer = load_toy(bytes_only()).value();
  EXPECT_EQ(pieces(tokenizer, tokenizer->encode("ď🌶", false)), (Texts{"", "ď", "", "", "", "🌶", ""}));
  const std::string family = "👨‍👩‍👧‍👦";
  std::string all;
  for (const std::string& piece : pieces(tokenizer, tokenizer->encode(family, false))) {
    EXPECT_EQ(valid_utf8_prefix(piece), piece.size());
    EXPECT_EQ(piece.find(kReplacementCharacter), std::string::npos);
    all += piece;
  }
  EXPECT_EQ(all, family);
}

TEST(DetokenizerCases, EndInTheMiddleOfACharacter) {
  for (const char* base : {"bytes", "spm"}) {
    const auto tokenizer = std::string(base) == "bytes" ? load_toy(bytes_only()).value() : toy("spm");
    Ids ids = tokenizer->encode("a🌶", false);
    ids.resize(ids.size() - 2);
    EXPECT_EQ(tokenizer->decode(ids, false), "a\uFFFD") << base;
    EXPECT_EQ(pieces(tokenizer, ids).back(), "\uFFFD") << base;
  }
}

TEST(DetokenizerCases, StripAtTheEndIsHeldBackAndDropped) {
  const json strip = {{"type", "Strip"}, {"content", "x"}, {"start", 1}, {"stop", 2}};
  const json decoder = {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, strip}}};
  const auto tokenizer = load_toy(bytes_only({{"decoder", decoder}})).value();
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("xxaxxxbxxx", false), false), "xaxxxbx");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("xxx", false), false), "");
  EXPECT_EQ(pieces(tokenizer, tokenizer->encode("axxx", false)), (Texts{"a", "", "", "x", ""}));
}

// --- properties ---

std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> parts{"the ", "wall",    " ", "\n",     "7", "é",  "e\u0301", "水",        "😁",
                                              "<s>",  "<|end|>", "▁", "\u00a0", ",", "'s", "ÿ",       "\U0010FFFF"};
  std::string text;
  for (size_t n = random() % 30; n > 0; --n) text += parts[random() % parts.size()];
  return text;
}

TEST(TokenizerProperties, RandomTextComesBack) {
  std::mt19937 random(1);
  const auto bytes = load_toy(bytes_only()).value();
  const auto merged =
      toy("bytes", {{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}}});
  for (int round = 0; round < 2000; ++round) {
    const std::string text = random_text(random);
    EXPECT_EQ(bytes->decode(bytes->encode(text, false), false), text);
    EXPECT_EQ(merged->decode(merged->encode(text, false), false), text);
  }
}

TEST(TokenizerProperties, ByteSoupNeverCrashesAndStreamsEqualDecode) {
  std::mt19937 random(2);
  const json components = read_test_json("components.json");
  for (const auto& test : components.at("cases")) {
    const auto tokenizer = toy(test.at("base"), test.at("patch"));
    for (int round = 0; round < 40; ++round) {
      std::string soup(random() % 60, '\0');
      for (char& c : soup) c = static_cast<char>(random());
      for (const int32_t id : tokenizer->encode(soup, true)) EXPECT_FALSE(tokenizer->token_text(id).empty());
      EXPECT_EQ(tokenizer->encode(soup, true), tokenizer->encode(replace_invalid_utf8(soup), true));
      Ids ids(random() % 40);
      for (int32_t& id : ids)
        id = static_cast<int32_t>(random() % static_cast<uint32_t>(tokenizer->vocab_size() + 2)) - 1;
      std::string streamed;
      for (const std::string& piece : pieces(tokenizer, ids)) {
        EXPECT_EQ(valid_utf8_prefix(piece), piece.size());
        streamed += piece;
      }
      EXPECT_EQ(streamed, tokenizer->decode(ids, false));
    }
  }
}

// The plain rule, quadratic: always the neighbours with the lowest rank, leftmost first.
Ids merge_by_rule(Ids ids, const std::map<std::pair<int32_t, int32_t>, std::pair<size_t, int32_t>>& merges) {
  while (true) {
    size_t best = ids.size();
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto here = merges.find({ids[i], ids[i + 1]});
      if (here == merges.end()) continue;
      if (best == ids.size() || here->second.first < merges.at({ids[best], ids[best + 1]}).first) best = i;
    }
    if (best == ids.size()) return ids;
    ids[best] = merges.at({ids[best], ids[best + 1]}).second;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(TokenizerProperties, MergesFollowTheRuleForShortAndLongPieces) {
  json root = bytes_only();
  json& vocab = root["model"]["vocab"];
  std::map<std::pair<int32_t, int32_t>, std::pair<size_t, int32_t>> merges;
  const std::vector<std::pair<std::string, std::string>> list{{"b", "a"},   {"a", "b"},  {"a", "a"},
                                                              {"ab", "ab"}, {"aa", "b"}, {"c", "c"},
                                                              {"cc", "cc"}, {"ba", "c"}, {"aa", "aa"}};
  int32_t next = 500;
  for (const auto& [left, right] : list) {
    if (!vocab.contains(left + right)) vocab[left + right] = next++;
    root["model"]["merges"].push_back({left, right});
    merges[{vocab[left], vocab[right]}] = {merges.size(), vocab[left + right]};
  }
  root["added_tokens"] = json::array();
  const auto tokenizer = load_toy(root).value();
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string text(1 + random() % 120, ' ');
    for (char& c : text) c = "aaabbccd"[random() % 8];
    Ids start;
    for (const char c : text) start.push_back(vocab[std::string(1, c)]);
    EXPECT_EQ(tokenizer->encode(text, false), merge_by_rule(start, merges)) << text;
  }
}

TEST(TokenizerProperties, TimeGrowsAsNLogN) {
  json root = bytes_only();
  std::string run = "a";
  for (int i = 0; i < 5; ++i) {
    root["model"]["merges"].push_back({run, run});
    run += run;
    root["model"]["vocab"][run] = 500 + i;
  }
  root["added_tokens"] = json::array();
  const auto tokenizer = load_toy(root).value();
  const auto seconds = [&](size_t n, const std::string& unit) {
    std::string text;
    while (text.size() < n) text += unit;
    const std::clock_t start = std::clock();
    EXPECT_GT(tokenizer->encode(text, false).size(), 0u);
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  for (const std::string unit : {"a", "_", "水", "7", "e\u0323\u0301", "<|"}) {
    const double small = seconds(100'000, unit);
    EXPECT_LT(seconds(800'000, unit), 24 * small + 0.2) << unit;
  }
}

TEST(TokenizerProperties, ManyThreadsOneTokenizer) {
  const auto tokenizer = toy("spm");
  const std::string text = "The miller's daughter counted 144 sacks, 水 and 😁.";
  const Ids ids = tokenizer->encode(text, true);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(tokenizer->encode(text, true), ids);
        EXPECT_EQ(tokenizer->decode(ids, true), text);
      }
    });
  }
}

}  // namespace
}  // namespace assay
