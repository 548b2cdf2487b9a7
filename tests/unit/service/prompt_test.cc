// Conversations: what clients send, what templates get.
#include "server/service/prompt.h"

#include <gtest/gtest.h>

#include "server/service/status.h"
#include "tests/unit/service/fakes.h"

namespace assay::testing {
namespace {

using Json = nlohmann::ordered_json;

Conversation talk(const Json& messages) {
  Conversation conversation;
  conversation.messages = messages;
  return conversation;
}

absl::StatusOr<std::string> render(const Conversation& conversation, bool parts = false) {
  return render_conversation(conversation, PlainTemplate(parts), ByteTokenizer());
}

std::string wrong_field(const Json& messages) {
  const auto text = render(talk(messages));
  return text.ok() ? "(accepted)" : describe_error(text.status()).param;
}

TEST(Prompt, RolesAndContents) {
  EXPECT_EQ(*render(talk(Json::parse(R"([{"role":"user","content":"hi","id":7},{"role":"assistant","content":null}])"))),
            "user:hi;assistant:;>");
  EXPECT_EQ(*render(talk(Json::parse(R"([{"role":"developer","content":"be brief"}])"))), "system:be brief;>");
}

TEST(Prompt, Case64PartsAreJoinedOrPassedOn) {
  const Json messages = Json::parse(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])");
  EXPECT_EQ(*render(talk(messages)), "user:a\nb;>");
  EXPECT_EQ(*render(talk(messages), true), "user:[a][b];>");
  EXPECT_EQ(wrong_field(Json::parse(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])")),
            "messages[0].content[0]");
}

TEST(Prompt, Case52WrongTypesAreNamed) {
  EXPECT_EQ(wrong_field(Json::parse("[]")), "messages");
  EXPECT_EQ(wrong_field(Json::parse("[5]")), "messages[0]");
  EXPECT_EQ(wrong_field(Json::parse(R"([{"content":"x"}])")), "messages[0].role");
  EXPECT_EQ(wrong_field(Json::parse(R"([{"role":"user","content":5}])")), "messages[0].content");
  EXPECT_EQ(wrong_field(Json::parse(R"([{"role":"user","content":"x","name":1}])")), "messages[0].name");
  EXPECT_EQ(wrong_field(Json::parse(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"no"}}]}])")),
            "messages[0].tool_calls[0].function.arguments");
}

TEST(Prompt, ArgumentsOfToolCallsBecomeObjects) {
  EXPECT_EQ(*render(talk(Json::parse(
                R"([{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{\"x\":5}"}}]}])"))),
            "assistant:5;>");
}

TEST(Prompt, Case62TemplateErrorIsTheClientsMessage) {
  const auto text = render(talk(Json::parse(R"([{"role":"bad","content":"x"}])")));
  const ErrorView error = describe_error(text.status());
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.message, "roles must alternate");
  EXPECT_EQ(error.param, "messages");
}

TEST(Prompt, ATemplateOverItsLimitsIsTheClientsFault) {
  const auto endless = ChatTemplate::parse("{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}");
  ASSERT_TRUE(endless.ok()) << endless.status();
  const auto text = render_conversation(talk(Json::parse(R"([{"role":"user","content":"x"}])")), **endless, ByteTokenizer());
  const ErrorView error = describe_error(text.status());
  EXPECT_EQ(error.http_status, 400);  // 429 would be sent again, and again
  EXPECT_EQ(error.param, "messages");
}

TEST(Prompt, ArgumentsOfToolCallsAreBounded) {
  std::string keys;
  for (int i = 0; i <= 1024; ++i) keys += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":1";
  const std::string deep = "{\"x\":" + std::string(64, '[') + std::string(64, ']') + "}";
  for (const std::string& arguments : {"{" + keys + "}", deep}) {
    const Json call = {{"function", {{"name", "f"}, {"arguments", arguments}}}};
    EXPECT_EQ(wrong_field(Json::array({{{"role", "assistant"}, {"tool_calls", Json::array({call})}}})),
              "messages[0].tool_calls[0].function.arguments");
  }
}

TEST(Prompt, ContinueFinalMessage) {
  Conversation conversation = talk(Json::parse(R"([{"role":"user","content":"q"},{"role":"assistant","content":"The answer"}])"));
  conversation.continue_final_message = true;
  EXPECT_FALSE(render(conversation).ok());  // add_generation_prompt is still true
  conversation.add_generation_prompt = false;
  EXPECT_EQ(*render(conversation), "user:q;assistant:The answer");
  EXPECT_EQ(*cut_after_final_message("<x>hello</x>", " hello "), "<x>hello");
  EXPECT_FALSE(cut_after_final_message("<x></x>", "hello").ok());
}

TEST(Prompt, TemplateKwargs) {
  Conversation conversation = talk(Json::parse(R"([{"role":"user","content":"q"}])"));
  conversation.chat_template_kwargs = {{"shout", true}};
  EXPECT_EQ(*render(conversation), "user:q;!>");
  conversation.chat_template_kwargs = {{"messages", Json::array()}};
  EXPECT_EQ(describe_error(render(conversation).status()).param, "chat_template_kwargs");
}

}  // namespace
}  // namespace assay::testing
