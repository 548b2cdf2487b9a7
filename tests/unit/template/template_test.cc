// Chat templates against Python's Jinja2 (rows.json, made by make_rows.py), and what Python has no say in: limits,
// statuses.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/text/chat_template.h"
#include "server/text/template/lexer.h"
#include "server/text/template/parser.h"
#include "server/text/template/render.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // tests/fuzz/chat_template_fuzz.cc

namespace assay {
namespace {

using nlohmann::ordered_json;

ordered_json load(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return ordered_json::parse(file);
}

// The moment of make_rows.py: 2024-07-26 08:05:09, a Friday.
std::tm fixed_now() {
  std::tm now{};
  now.tm_year = 124, now.tm_mon = 6, now.tm_mday = 26, now.tm_hour = 8, now.tm_min = 5, now.tm_sec = 9;
  now.tm_wday = 5, now.tm_yday = 207;
  return now;
}

absl::StatusOr<std::string> render_at_fixed_time(const std::string& source, const ordered_json& variables) {
  try {
    return jinja::render(jinja::parse_template(source), variables, jinja::Limits{}, fixed_now());
  } catch (const jinja::ParseError& error) {
    return absl::UnimplementedError(error.what());  // a code that render never returns
  }
}

void expect_error(const ordered_json& row, const absl::Status& status) {
  const std::string type = row["error_type"], message = row["error"], got(status.message());
  if (type == "syntax") {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << got;
    EXPECT_EQ(got.rfind("chat template, line " + std::to_string(row["line"].get<int>()) + ": ", 0), 0u)
        << got << " / " << message;
  } else if (type == "raised") {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << got;
    EXPECT_EQ(got, message);
  } else {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << got;
    if (type == "undefined") {
      EXPECT_EQ(got, message);
    }
  }
}

TEST(ChatTemplateRows, MatchJinja2) {
  const ordered_json rows = load(ASSAY_SOURCE_DIR "/tests/unit/template/rows.json");
  ASSERT_GE(rows.size(), 300u);
  for (const auto& row : rows) {
    SCOPED_TRACE(row["name"].get<std::string>() + ": " + row["template"].get<std::string>());
    const auto result = render_at_fixed_time(row["template"], row["variables"]);
    if (!row.contains("error")) {
      EXPECT_EQ(result.ok() ? *result : "ERROR " + std::string(result.status().message()),
                row["rendered"].get<std::string>());
    } else if (result.ok()) {
      ADD_FAILURE() << "rendered " << *result << " instead of " << row["error"];
    } else {
      expect_error(row, result.status());
    }
  }
}

// ---- Published templates, where the reference data is present.

std::string reference_data() {
  const char* path = std::getenv("ASSAY_REFERENCE_DATA");
  return path ? path : ASSAY_SOURCE_DIR "/../shared";
}

ordered_json golden_variables(const ordered_json& row, const ordered_json& config) {
  ordered_json variables = row["kwargs"];
  if (!variables.is_object()) variables = ordered_json::object();
  variables["messages"] = row["messages"];
  variables["tools"] = row["tools"];
  variables["add_generation_prompt"] = row["add_generation_prompt"];
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    if (config.contains(name) && config[name].is_string()) variables[name] = config[name];
  }
  return variables;
}

TEST(ChatTemplateGolden, PublishedTemplatesMatchTheReference) {
  const std::string root = reference_data();
  if (!std::ifstream(root + "/golden/chat.json")) GTEST_SKIP() << "no reference data (golden/chat.json) in " << root;
  std::map<std::string, std::shared_ptr<const ChatTemplate>> templates;
  std::map<std::string, ordered_json> configs;
  int compared = 0;
  for (const auto& row : load(root + "/golden/chat.json")) {
    const std::string model = row["model"];
    SCOPED_TRACE(model + " " + row["conversation"].get<std::string>());
    if (!templates.count(model)) {
      configs[model] = load(root + "/tokenizers/" + model + "/tokenizer_config.json");
      const auto parsed = ChatTemplate::parse(configs[model]["chat_template"].get<std::string>());
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_FALSE((*parsed)->wants_content_parts());
      templates[model] = *parsed;
    }
    const auto result = templates[model]->render(golden_variables(row, configs[model]));
    if (row.contains("error")) {
      EXPECT_EQ(result.status().message(), row["error"].get<std::string>());
    } else {
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(*result, row["rendered"].get<std::string>());
    }
    ++compared;
  }
  EXPECT_GE(compared, 100);
}

// ---- The public interface.

std::shared_ptr<const ChatTemplate> parsed(const std::string& source) {
  auto result = ChatTemplate::parse(source);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : nullptr;
}

absl::Status render_status(const std::string& source, const ordered_json& variables = ordered_json::object()) {
  return parsed(source)->render(variables).status();
}

TEST(ChatTemplate, RaiseExceptionIsInvalidArgumentWithItsMessage) {
  const auto status = render_status("{{ raise_exception('System role not supported') }}");
  EXPECT_EQ(status, absl::InvalidArgumentError("System role not supported"));
}

TEST(ChatTemplate, RunTimeErrorIsFailedPrecondition) {
  EXPECT_EQ(render_status("{{ nothing.at_all }}"), absl::FailedPreconditionError("'nothing' is undefined"));
}

TEST(ChatTemplate, ParseErrorNamesTheLine) {
  const auto status = ChatTemplate::parse("one\n{% if x %}\n{{ y | }}\n{% endif %}").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()).rfind("chat template, line 3: ", 0), 0u) << status;
}

TEST(ChatTemplate, OtherFilesAreRefused) {
  for (const char* tag : {"include 'x'", "import 'x' as y", "from 'x' import y", "extends 'x'", "block b"}) {
    const auto status = ChatTemplate::parse("\n{% " + std::string(tag) + " %}").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << tag;
    EXPECT_NE(std::string(status.message()).find("line 2: '" + std::string(tag).substr(0, 4)), std::string::npos)
        << status;
  }
}

TEST(ChatTemplate, VariablesMustBeAnObject) {
  EXPECT_EQ(render_status("x", ordered_json::array()).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ChatTemplate, StrftimeNowIsTheClock) {
  const auto year = parsed("{{ strftime_now('%Y') | int }}")->render(ordered_json::object());
  ASSERT_TRUE(year.ok());
  EXPECT_GE(std::stoi(*year), 2024);
}

// The known difference of docs/adr/0004: Jinja resolves names when compiling and prints nothing for the first n.
TEST(ChatTemplate, NamesResolveAtRunTime) {
  const ordered_json variables = {{"n", 7}};
  EXPECT_EQ(*parsed("{% for i in [1] %}{{ n }}{% endfor %}{% set n = 3 %}{{ n }}")->render(variables), "73");
}

TEST(ChatTemplate, KnowsWhetherContentIsTakenApart) {
  const std::pair<const char*, bool> cases[] = {
      {"{% for m in messages %}{{ m.content }}{% endfor %}", false},
      {"{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}", true},
      {"{% for m in messages %}{% for p in m['content'] %}{{ p.text }}{% endfor %}{% endfor %}", true},
      {"{% for m in messages %}{% set c = m['content'] %}{% if c is string %}{{ c }}{% else %}{% for p in c %}{{ "
       "p.text }}{% endfor %}{% endif %}{% endfor %}",
       true},
      {"{% macro show(c) %}{% for p in c %}{{ p.text }}{% endfor %}{% endmacro %}{{ show(messages[0].content) }}",
       true},
      {"{{ show(messages[0].content) }}{% macro show(c) %}{{ c | map(attribute='text') | join }}{% endmacro %}", true},
      {"{{ messages[0].content | selectattr('type', 'equalto', 'text') | list }}", true},
      {"{% for p in messages[0].get('content') %}{{ p }}{% endfor %}", true},
      {"{% for line in messages[0].content.split('x') %}{{ line }}{% endfor %}", false},
      {"{% for m in messages %}{% set c = m.content | trim %}{% for t in tools %}{{ t }}{% endfor %}{{ c }}{% endfor "
       "%}",
       false},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(parsed(source)->wants_content_parts(), expected) << source;
}

// ---- Hostile input: a status, soon, and never a crash.

TEST(ChatTemplateLimits, CostlyTemplatesAreStopped) {
  const char* const templates[] = {
      "{{ 'a' * 10**9 }}",
      "{{ [0] * 10**12 }}",
      "{{ ('a' * 10**8) | length }}{{ ('b' * 10**8) * 10**30 }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
      "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}{% endfor %}{% "
      "endfor %}",
      "{% set ns = namespace(s='x') %}{% for i in range(100000) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | "
      "tojson }}",
      "{% set ns = namespace(l=[1], k=[1]) %}{% for i in range(90) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.k = [ns.k, "
      "ns.k] %}{% endfor %}{{ ns.l == ns.k }}",
      "{% set ns = namespace() %}{% set ns.self = ns %}{{ ns }}",
      "{% for i in range(100000) %}{{ '%10000d' % i }}{% endfor %}",
      "{{ 'x'.ljust(10**11) }}",
      "{{ 'x'.center(10**11) }}{{ '{:>99999999999}'.format(1) }}",
      "{{ ('x,' * 10**7).split(',') | length }}{{ ('x' * 10**8) | list | length }}",
      "{{ 'abc' | indent(10**12) }}",
      "{{ [1] | batch(10**12, 0) | list }}",
      "{{ ('a' * 10**7).replace('', 'b' * 1000) }}",
      "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
  };
  for (const char* source : templates) {
    const auto status = render_status(source);
    const bool stopped = status.code() == absl::StatusCode::kResourceExhausted ||
                         status.code() == absl::StatusCode::kFailedPrecondition;
    EXPECT_TRUE(stopped) << source << ": " << status;
  }
}

TEST(ChatTemplateLimits, DeepSourceIsAParseError) {
  const auto repeat = [](const std::string& text, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
  };
  const int n = 100000;
  const std::string sources[] = {"{{ " + repeat("(", n),
                                 "{{ " + repeat("[", n),
                                 "{{ " + repeat("{1:", n),
                                 "{{ " + repeat("-", n) + "1 }}",
                                 "{{ " + repeat("not ", n) + "1 }}",
                                 "{{ 1" + repeat(" + 1", n) + " }}",
                                 "{{ 1" + repeat(".a", n) + " }}",
                                 "{{ 1" + repeat("|abs", n) + " }}",
                                 "{{ 1" + repeat("()", n) + " }}",
                                 "{{ " + repeat("1 if 1 else ", n) + "1 }}",
                                 repeat("{% if 1 %}", n),
                                 repeat("{% for x in y %}", n),
                                 repeat("{% macro m() %}", n),
                                 "{{ a" + repeat("[a", n) + " }}",
                                 "{{ f(" + repeat("f(", n),
                                 "{% set " + repeat("(", n) + " %}"};
  for (const auto& source : sources) {
    EXPECT_EQ(ChatTemplate::parse(source).status().code(), absl::StatusCode::kInvalidArgument) << source.substr(0, 40);
  }
}

TEST(ChatTemplateLimits, DeepVariablesAreRefused) {
  ordered_json deep = 1;
  for (int i = 0; i < 10000; ++i) {
    ordered_json outer = ordered_json::array();
    outer.push_back(std::move(deep));
    deep = std::move(outer);
  }
  ordered_json variables;
  variables["messages"] = std::move(deep);
  EXPECT_EQ(render_status("{{ messages }}", variables).code(), absl::StatusCode::kResourceExhausted);
}

TEST(ChatTemplateLimits, ALongConversationFits) {
  ordered_json variables;
  for (int i = 0; i < 5000; ++i) {
    variables["messages"].push_back({{"role", i % 2 ? "assistant" : "user"}, {"content", std::string(1000, 'x')}});
  }
  const auto result = parsed("{% for m in messages %}{{ '<|' + m.role + '|>' + m.content | trim + '\n' }}{% endfor %}")
                          ->render(variables);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->size(), 5000u * 1000u);
}

TEST(ChatTemplateFuzz, CorpusRuns) {
  int runs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ASSAY_SOURCE_DIR "/tests/fuzz/corpus/chat_template")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    for (size_t size = 0; size <= bytes.size(); size += 1 + bytes.size() / 50) {  // whole inputs and cut ones
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), size);
    }
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()), 0);
    ++runs;
  }
  EXPECT_GE(runs, 8);
}

// Rows with bytes changed, dropped and doubled, the same ones each time: parse and render must return.
TEST(ChatTemplateFuzz, MutatedRowsReturn) {
  std::mt19937 random(7);
  for (const auto& row : load(ASSAY_SOURCE_DIR "/tests/unit/template/rows.json")) {
    std::string input = row["template"].get<std::string>();
    for (int round = 0; round < 6 && !input.empty(); ++round) {
      const size_t at = random() % input.size();
      static constexpr char kBytes[] = "{}%#-+|.,:()[]'\"\\ \n=~*/<>a1\xC3";
      switch (random() % 3) {
        case 0: input[at] = kBytes[random() % (sizeof kBytes - 1)]; break;
        case 1: input.erase(at, 1 + random() % 3); break;
        default: input.insert(at, input.substr(at, random() % 12)); break;
      }
      const std::string bytes =
          input + '\0' + row["variables"].dump(-1, ' ', false, ordered_json::error_handler_t::replace);
      EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()), 0);
    }
  }
}

}  // namespace
}  // namespace assay
