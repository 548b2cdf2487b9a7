// What a folder may hold, and that everything else is refused with the name of the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "tests/unit/text/toy_tokenizers.h"

namespace assay {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string error_of(const json& root) {
  const auto tokenizer = load_toy(root);
  EXPECT_FALSE(tokenizer.ok()) << root.dump().substr(0, 200);
  return tokenizer.ok() ? "" : std::string(tokenizer.status().message());
}

std::string error_with(const json& patch) {
  return error_of(toy_json("bytes", patch));
}

TEST(TokenizerLoad, UnknownComponentsAreNamed) {
  const json foo = {{"type", "Foo"}};
  const auto sequence = [&](const char* key) { return json{{"type", "Sequence"}, {key, json::array({foo})}}; };
  EXPECT_THAT(error_with({{"normalizer", foo}}), HasSubstr("normalizer.type: unknown normalizer \"Foo\""));
  EXPECT_THAT(error_with({{"normalizer", sequence("normalizers")}}),
              HasSubstr("normalizer.normalizers[0].type: unknown"));
  EXPECT_THAT(error_with({{"pre_tokenizer", foo}}), HasSubstr("pre_tokenizer.type: unknown pre-tokenizer \"Foo\""));
  EXPECT_THAT(error_with({{"pre_tokenizer", sequence("pretokenizers")}}),
              HasSubstr("pre_tokenizer.pretokenizers[0].type"));
  EXPECT_THAT(error_with({{"post_processor", foo}}), HasSubstr("post_processor.type: unknown post-processor \"Foo\""));
  EXPECT_THAT(error_with({{"decoder", foo}}), HasSubstr("decoder.type: unknown decoder \"Foo\""));
  EXPECT_THAT(error_with({{"model", {{"type", "Unigram"}}}}), HasSubstr("model.type: unknown model \"Unigram\""));
}

TEST(TokenizerLoad, WrongTypesAndMissingFieldsAreNamed) {
  EXPECT_THAT(error_of(json::array()), HasSubstr("must be an object, is array"));
  EXPECT_THAT(error_of(json::object()), HasSubstr("has no field \"model\""));
  EXPECT_THAT(error_with({{"model", {{"vocab", 7}}}}), HasSubstr("model.vocab: must be an object, is number"));
  EXPECT_THAT(error_with({{"model", {{"merges", "x"}}}}), HasSubstr("model.merges: must be an array"));
  EXPECT_THAT(error_with({{"model", {{"fuse_unk", "no"}}}}), HasSubstr("model.fuse_unk: must be true or false"));
  EXPECT_THAT(error_with({{"model", {{"dropout", 0.1}}}}), HasSubstr("model.dropout: must be null or 0"));
  EXPECT_THAT(error_with({{"model", {{"unk_token", "<none>"}}}}),
              HasSubstr("model.unk_token: \"<none>\" is not in the vocabulary"));
  EXPECT_THAT(error_with({{"model", {{"continuing_subword_prefix", "##"}}}}),
              HasSubstr("model.continuing_subword_prefix"));
  EXPECT_THAT(error_with({{"normalizer", "NFC"}}), HasSubstr("normalizer: must be an object"));
  EXPECT_THAT(error_with({{"normalizer", {{"type", "Prepend"}}}}), HasSubstr("normalizer: has no field \"prepend\""));
  EXPECT_THAT(error_with({{"added_tokens", {{{"id", 999}}}}}), HasSubstr("added_tokens[0]: has no field \"content\""));
  EXPECT_THAT(error_with({{"decoder", {{"type", "Strip"}, {"content", "ab"}, {"start", 1}, {"stop", 0}}}}),
              HasSubstr("decoder.content: must be one character"));
}

TEST(TokenizerLoad, IdsAreChecked) {
  const auto vocab = [](const json& extra) {
    json root = toy_json("bytes");
    root["model"]["vocab"].update(extra);
    return root;
  };
  EXPECT_THAT(error_of(vocab({{"new", -1}})), HasSubstr("model.vocab[\"new\"]: must be from 0 to 4194303, is -1"));
  EXPECT_THAT(error_of(vocab({{"new", 2147483647}})), HasSubstr("must be from 0 to 4194303"));
  EXPECT_THAT(error_of(vocab({{"new", 18446744073709551615u}})), HasSubstr("must be from 0 to 4194303"));
  EXPECT_THAT(error_of(vocab({{"new", 1.5}})), HasSubstr("must be an integer"));
  EXPECT_THAT(error_of(vocab({{"new", 5}})), HasSubstr("id 5 is taken by"));
  const auto added = [](int64_t id, const char* content) { return json{{"id", id}, {"content", content}}; };
  EXPECT_THAT(error_with({{"added_tokens", {added(5, "<new>")}}}), HasSubstr("added_tokens[0].id: 5 is taken by"));
  EXPECT_THAT(error_with({{"added_tokens", {added(900, "a")}}}),
              HasSubstr("added_tokens[0].id: is 900, but model.vocab gives \"a\""));
  EXPECT_THAT(error_with({{"added_tokens", {added(900, "<x>"), added(900, "<y>")}}}),
              HasSubstr("added_tokens[1].id: 900 is there twice"));
  EXPECT_THAT(error_with({{"added_tokens", {added(900, "<x>"), added(901, "<x>")}}}),
              HasSubstr("added_tokens[1].content"));
  EXPECT_THAT(error_with({{"added_tokens", {added(1ll << 40, "<x>")}}}),
              HasSubstr("added_tokens[0].id: must be from 0"));
}

TEST(TokenizerLoad, MergesAreChecked) {
  const auto merges = [](const json& list) { return error_with({{"model", {{"merges", list}}}}); };
  EXPECT_THAT(merges(json::array({"ab"})), HasSubstr("model.merges[0]: must be two tokens with one space"));
  EXPECT_THAT(merges(json::array({"a b c"})), HasSubstr("model.merges[0]: must be two tokens"));
  EXPECT_THAT(merges(json::array({"a nowhere"})),
              HasSubstr("model.merges[0]: names \"nowhere\", which is not in the vocabulary"));
  EXPECT_THAT(merges(json::array({"q q"})), HasSubstr("model.merges[0]: names \"qq\""));
  EXPECT_THAT(merges(json::array({json::array({"a"})})), HasSubstr("model.merges[0]: must be two tokens"));
  EXPECT_THAT(merges(json::array({json::array({"a", 1})})), HasSubstr("model.merges[0][1]: must be a string"));
  EXPECT_THAT(merges(json::array({7})), HasSubstr("model.merges[0]: must be an array"));
}

TEST(TokenizerLoad, PatternsAreChecked) {
  const auto regex = [](const char* text) {
    return error_with(
        {{"pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", text}}}, {"behavior", "Isolated"}}}});
  };
  EXPECT_THAT(regex("(a"), HasSubstr("pre_tokenizer.pattern.Regex: bad regular expression"));
  EXPECT_THAT(regex("[a-z&&[^x]]"), HasSubstr("the class intersection &&"));
  EXPECT_THAT(regex("[a[bc]]"), HasSubstr("a character class inside a character class"));
  EXPECT_THAT(regex("a{1,2}+"), HasSubstr("'+' after an interval"));
  EXPECT_THAT(regex("\\y"), HasSubstr("the escape \\y"));
  EXPECT_THAT(regex("\\"), HasSubstr("a single backslash"));
  EXPECT_THAT(regex("\\p{Nonsense}"), HasSubstr("bad regular expression"));
  EXPECT_THAT(
      error_with({{"pre_tokenizer", {{"type", "Split"}, {"pattern", {{"String", ""}}}, {"behavior", "Isolated"}}}}),
      HasSubstr("pre_tokenizer.pattern.String: must not be empty"));
  EXPECT_THAT(
      error_with({{"pre_tokenizer", {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Loose"}}}}),
      HasSubstr("pre_tokenizer.behavior: unknown behavior \"Loose\""));
}

TEST(TokenizerLoad, PostProcessorsAreChecked) {
  const auto with = [](const json& single, const json& specials) {
    return error_with(
        {{"post_processor", {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", specials}}}});
  };
  const json special = {{{"SpecialToken", {{"id", "<s>"}}}}};
  EXPECT_THAT(with(special, json::object()), HasSubstr("post_processor.special_tokens: has no field \"<s>\""));
  EXPECT_THAT(with(special, {{"<s>", {{"ids", {100000}}}}}), HasSubstr("special_tokens.<s>.ids[0]: must be from 0 to"));
  EXPECT_THAT(with({{{"Sequence", {{"id", "B"}}}}}, json::object()), HasSubstr("must be \"A\""));
}

TEST(TokenizerLoad, DeepNestingIsRefused) {
  json normalizer = {{"type", "NFC"}};
  for (int i = 0; i < 1000; ++i) normalizer = {{"type", "Sequence"}, {"normalizers", json::array({normalizer})}};
  EXPECT_THAT(error_with({{"normalizer", normalizer}}), HasSubstr("sequences are nested too deeply"));
  const std::string brackets(2'000'000, '[');
  EXPECT_FALSE(parse_tokenizer_json(brackets, {}).ok());
}

TEST(TokenizerLoad, NotJsonIsSaidSo) {
  EXPECT_THAT(std::string(parse_tokenizer_json("{\"model\": ", {}).status().message()),
              HasSubstr("tokenizer.json: is not JSON near byte"));
  EXPECT_FALSE(parse_tokenizer_json("", {}).ok());
  EXPECT_FALSE(parse_tokenizer_json("\xFF\xFE", {}).ok());
}

// Every single value of a good file replaced by something else: loads or says why, never more.
void break_each(json& root, json& node, int& refused) {
  static const std::vector<json> strangers = {nullptr, true, -1, 1e300, "x", json::array(), json::object(), 4194303};
  for (auto& child : node) {
    const json kept = child;
    for (const json& stranger : strangers) {
      child = stranger;
      refused += load_toy(root).ok() ? 0 : 1;
    }
    child = kept;
    if (child.is_structured() && child.size() < 20) break_each(root, child, refused);
  }
}

TEST(TokenizerLoad, NoReplacedValueCrashes) {
  json root = toy_json("spm");
  int refused = 0;
  break_each(root, root, refused);
  EXPECT_GT(refused, 100);
}

class TokenizerFolder : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(testing::TempDir()) / ("tokenizer_" + std::to_string(std::random_device()()));
    std::filesystem::create_directory(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  void write(const std::string& name, const std::string& text) { std::ofstream(dir_ / name) << text; }

  std::filesystem::path dir_;
};

TEST_F(TokenizerFolder, MissingFileIsNotFound) {
  const auto tokenizer = Tokenizer::load(dir_.string());
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("there is no tokenizer.json"));
}

TEST_F(TokenizerFolder, NamesOfSpecialTokensAndTheTemplate) {
  write("tokenizer.json", toy_json("spm").dump());
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": null, "chat_template":
        [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  write("special_tokens_map.json", R"({"bos_token": "<unk>", "eos_token": "</s>", "pad_token": "<none>"})");
  const auto tokenizer = Tokenizer::load(dir_.string()).value();
  EXPECT_EQ(tokenizer->bos_token(), "<s>");
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_token(), "</s>");
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_EQ(tokenizer->pad_token(), "<none>");
  EXPECT_EQ(tokenizer->unk_token(), "");
  EXPECT_EQ(tokenizer->chat_template(), "D");
}

TEST_F(TokenizerFolder, TheTemplateFileGoesFirst) {
  write("tokenizer.json", toy_json("bytes").dump());
  write("tokenizer_config.json", R"({"chat_template": "from the config"})");
  write("chat_template.jinja", "from the file");
  EXPECT_EQ(Tokenizer::load(dir_.string()).value()->chat_template(), "from the file");
}

TEST_F(TokenizerFolder, WithoutConfigNothingIsStated) {
  write("tokenizer.json", toy_json("bytes").dump());
  const auto tokenizer = Tokenizer::load(dir_.string()).value();
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer->eos_token(), "");
  EXPECT_EQ(tokenizer->chat_template(), "");
}

TEST_F(TokenizerFolder, BrokenNeighboursAreNamed) {
  write("tokenizer.json", toy_json("bytes").dump());
  write("tokenizer_config.json", R"({"bos_token": 7})");
  EXPECT_THAT(std::string(Tokenizer::load(dir_.string()).status().message()),
              HasSubstr("tokenizer_config.json.bos_token: must be a string"));
  write("tokenizer_config.json", "{");
  EXPECT_THAT(std::string(Tokenizer::load(dir_.string()).status().message()),
              HasSubstr("tokenizer_config.json: is not JSON"));
}

}  // namespace
}  // namespace assay
