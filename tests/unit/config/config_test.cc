// Flags, environment, file: precedence, strictness, units, help.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "server/config/flags.h"
#include "server/config/load.h"
#include "server/config/values.h"

namespace assay {
namespace {

std::string message(const absl::Status& status) { return std::string(status.message()); }

std::string write_file(const std::string& text) {
  const std::string path = ::testing::TempDir() + "assay_config_test.json";
  std::ofstream(path) << text;
  return path;
}

TEST(Config, EveryFlagHasADifferentNameAndADefaultThatParses) {
  std::set<std::string> names;
  for (const Flag& flag : serve_flags()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    const std::string text = flag_text(flag, ServeConfig{});
    if (text.empty()) continue;
    ServeConfig config;
    EXPECT_TRUE(set_flag(flag, {text}, flag.name, config).ok()) << flag.name << " " << text;
    EXPECT_EQ(flag_text(flag, config), text);
  }
}

TEST(Config, FlagWinsOverEnvironmentOverFileOverDefault) {
  const std::string path = write_file(R"({"port": 1, "max_num_seqs": 2, "max_logprobs": 3} // comment)");
  const auto loaded = load_config({"--config", path, "--port", "11", "model-dir"},
                                  {"ASSAY_PORT=21", "ASSAY_MAX_NUM_SEQS=22", "HOME=/x"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.port, 11);
  EXPECT_EQ(loaded->config.max_num_seqs, 22);
  EXPECT_EQ(loaded->config.max_logprobs, 3);
  EXPECT_EQ(loaded->config.max_num_queued_reqs, 1024);
  EXPECT_EQ(loaded->config.model, "model-dir");
}

TEST(Config, UnknownNamesAreErrors) {
  EXPECT_NE(message(load_config({"--no-such-flag", "1"}, {}).status()).find("no-such-flag"), std::string::npos);
  EXPECT_NE(message(load_config({}, {"ASSAY_NO_SUCH=1"}).status()).find("ASSAY_NO_SUCH"), std::string::npos);
  EXPECT_NE(message(load_config({"--config", write_file(R"({"no_such": 1})")}, {}).status()).find("no_such"), std::string::npos);
  EXPECT_TRUE(load_config({}, {"ASSAY_REFERENCE_DATA=/x", "ASSAY_BINARY=/y"}).ok());
}

TEST(Config, ServiceLinksOfKubernetesAreExplained) {
  EXPECT_NE(message(load_config({}, {"ASSAY_PORT=tcp://10.0.0.1:8000"}).status()).find("enableServiceLinks"), std::string::npos);
}

TEST(Config, WrongValuesNameTheirSource) {
  EXPECT_NE(message(load_config({"--port", "eighty"}, {}).status()).find("--port"), std::string::npos);
  EXPECT_NE(message(load_config({"--port", "70000"}, {}).status()).find("65535"), std::string::npos);
  EXPECT_NE(message(load_config({"--kv-radius", "hope"}, {}).status()).find("witness, dither, both"), std::string::npos);
  EXPECT_NE(message(load_config({"--kv-outlier-pairs", "5"}, {}).status()).find("0, 4, 16"), std::string::npos);
  EXPECT_NE(message(load_config({"--kv-delta", "1.5"}, {}).status()).find("above 0 and at most 1"), std::string::npos);
  EXPECT_FALSE(load_config({"--kv-tau", "0"}, {}).ok());
  EXPECT_FALSE(load_config({"--kv-tau", "nan"}, {}).ok());
  EXPECT_FALSE(load_config({"--kv-tau-v", "much"}, {}).ok());
  EXPECT_FALSE(load_config({}, {"ASSAY_ENABLE_PREFIX_CACHING=maybe"}).ok());
  EXPECT_FALSE(load_config({"--config", write_file(R"({"metrics_auth": "true"})")}, {}).ok());
  EXPECT_FALSE(load_config({"--config", write_file(R"({"port": true})")}, {}).ok());
  EXPECT_FALSE(load_config({"--config", "/no/such/file"}, {}).ok());
  EXPECT_FALSE(load_config({"--config", write_file("[]")}, {}).ok());
}

TEST(Config, TheMetersFlagsReachTheEngine) {
  const std::string file = write_file(R"({"kv_tau": 0.125, "kv_gate": "off"})");
  const auto loaded = load_config({"--config", file, "--kv-radius", "both", "--kv-bound", "f", "--kv-tau-v", "0.01", "--kv-delta",
                                   "1e-3", "--no-kv-balance", "--no-kv-rotation", "--kv-outlier-pairs", "4",
                                   "--kv-dither-stream", "per-slot", "--kv-prefill-meter", "all", "--kv-seed", "7"},
                                  {"ASSAY_KV_TELEMETRY=summary", "ASSAY_KV_POOL=witcert"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const EngineConfig engine = engine_config(loaded->config);
  EXPECT_EQ(engine.kv_tau, 0.125);
  EXPECT_EQ(engine.kv_gate, "off");
  EXPECT_EQ(engine.kv_radius, "both");
  EXPECT_EQ(engine.kv_bound, "f");
  EXPECT_EQ(engine.kv_tau_v, 0.01);
  EXPECT_EQ(engine.kv_delta, 1e-3);
  EXPECT_FALSE(engine.kv_balance);
  EXPECT_FALSE(engine.kv_rotation);
  EXPECT_EQ(engine.kv_outlier_pairs, 4);
  EXPECT_EQ(engine.kv_dither_stream, "per-slot");
  EXPECT_EQ(engine.kv_prefill_meter, "all");
  EXPECT_EQ(engine.kv_telemetry, "summary");
  EXPECT_EQ(engine.kv_pool, "witcert");
  EXPECT_EQ(engine.kv_seed, 7u);
  EXPECT_EQ(config_json(loaded->config)["kv_tau"], 0.125);
  EXPECT_FALSE(config_json(loaded->config).contains("kv_seed"));
}

TEST(Config, LayersAreNumbersAndRanges) {
  const auto loaded = load_config({"--kv-exact-layers", "9+5-7", "--kv-exact-layers", "6", "--kv-repair-cache-memory", "0",
                                   "--kv-audit-rate", "0"},
                                  {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const EngineConfig engine = engine_config(loaded->config);
  EXPECT_EQ(engine.kv_exact_layers, (std::vector<int32_t>{5, 6, 7, 9}));
  EXPECT_EQ(engine.kv_repair_cache_memory_bytes, 0);
  EXPECT_EQ(engine.kv_audit_rate, 0.0);
  EXPECT_FALSE(engine_config(ServeConfig()).kv_repair_cache_memory_bytes.has_value());
  ServeConfig config;
  config.model = ::testing::TempDir();
  EXPECT_TRUE(check_config(config).ok());
  for (const char* wrong : {"x", "3-1", "-1", "1,,2", "", "1-", "100000"}) {
    config.kv_exact_layers = {wrong};
    EXPECT_NE(message(check_config(config)).find("--kv-exact-layers"), std::string::npos) << wrong;
  }
  EXPECT_FALSE(load_config({"--kv-audit-rate", "1.5"}, {}).ok());
  EXPECT_FALSE(load_config({"--kv-tau", "0"}, {}).ok());
}

TEST(Config, ListsAndBooleans) {
  const auto loaded = load_config({"--api-key", "a", "--api-key", "b", "--no-enable-prefix-caching", "--metrics-auth"},
                                  {"ASSAY_ALLOWED_ORIGINS=http://a,http://b"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.api_keys, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(loaded->config.allowed_origins, (std::vector<std::string>{"http://a", "http://b"}));
  EXPECT_FALSE(loaded->config.enable_prefix_caching);
  EXPECT_TRUE(loaded->config.metrics_auth);
}

// Whoever asks for keys and gives none must not get an open server.
TEST(Config, KeysThatAreGivenMustBeThere) {
  for (const char* entry : {"ASSAY_API_KEY=", "ASSAY_API_KEY=a,,b", "ASSAY_API_KEY_FILE="}) {
    EXPECT_FALSE(load_config({}, {entry}).ok()) << entry;
  }
  EXPECT_FALSE(load_config({"--api-key", ""}, {}).ok());
  EXPECT_FALSE(load_config({"--api-key-file="}, {}).ok());
  ServeConfig config;
  for (const char* json : {R"({"api_key": []})", R"({"api_key": ""})", R"({"api_key": ["a", ""]})", R"({"api_key_file": ""})"}) {
    EXPECT_FALSE(apply_json(json, "f", config).ok()) << json;
  }
  for (const char* text : {"", "\n \n", "# only a comment\n", "\r\n"}) {
    const auto loaded = load_config({"--api-key", "sk-zero", "--api-key-file", write_file(text)}, {});
    EXPECT_NE(message(loaded.status()).find("holds no key"), std::string::npos) << text;
  }
  EXPECT_FALSE(load_config({"--api-key-file", "/no/such/file"}, {}).ok());
  EXPECT_FALSE(load_config({}, {"ASSAY_API_KEY_FILE=" + ::testing::TempDir()}).ok());
  const auto loaded = load_config({"--api-key-file", write_file("# team\nsk-one \r\n\nsk-two")}, {"ASSAY_API_KEY=sk-zero"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.api_keys, (std::vector<std::string>{"sk-zero", "sk-one", "sk-two"}));
}

TEST(Config, SizesAndTimes) {
  EXPECT_EQ(parse_byte_size("4096")->bytes, 4096);
  EXPECT_EQ(parse_byte_size("1.5GiB")->bytes, 1610612736);
  EXPECT_EQ(parse_byte_size("8 MiB")->bytes, 8388608);
  for (const char* wrong : {"", "GiB", "8GB", "-1", "1e3", "nan", "99999999TiB"}) EXPECT_FALSE(parse_byte_size(wrong)) << wrong;
  EXPECT_EQ(parse_duration("250ms")->time.count(), 250);
  EXPECT_EQ(parse_duration("1.5s")->time.count(), 1500);
  EXPECT_EQ(parse_duration("30")->time.count(), 30000);
  EXPECT_EQ(parse_duration("2min")->time.count(), 120000);
  for (const char* wrong : {"", "s", "1h", "-1s"}) EXPECT_FALSE(parse_duration(wrong)) << wrong;
  EXPECT_EQ(byte_size_text({8 << 20}), "8MiB");
  EXPECT_EQ(duration_text({std::chrono::milliseconds(1500)}), "1500ms");
}

TEST(Config, ModelFolders) {
  ServeConfig config;
  EXPECT_NE(message(check_config(config)).find("--model"), std::string::npos);
  config.model = "meta-llama/Llama-3.2-1B";
  EXPECT_NE(message(check_config(config)).find("huggingface-cli download meta-llama/Llama-3.2-1B"), std::string::npos);
  config.model = "/no/such/folder";
  EXPECT_NE(message(check_config(config)).find("no such folder"), std::string::npos);
  config.model = ::testing::TempDir();
  EXPECT_TRUE(check_config(config).ok()) << check_config(config);
  config.ssl_certfile = write_file("x");
  EXPECT_NE(message(check_config(config)).find("--ssl-keyfile"), std::string::npos);
}

TEST(Config, GrpcNeedsAPortOfItsOwn) {
  ServeConfig config;
  config.model = ::testing::TempDir();
  EXPECT_EQ(config.grpc_port, 8001);
  config.grpc_port = config.port;
  EXPECT_NE(message(check_config(config)).find("--grpc-port"), std::string::npos);
  config.grpc_port = config.port = 0;  // any free HTTP port, no gRPC
  EXPECT_TRUE(check_config(config).ok()) << check_config(config);
}

TEST(Config, SecretsAreHidden) {
  ServeConfig config;
  config.api_keys = {"sk-secret"};
  const std::string text = config_json(config).dump();
  EXPECT_EQ(text.find("sk-secret"), std::string::npos);
}

// What /server_info shows can be saved as a configuration file.
TEST(Config, TheEffectiveConfigurationIsAConfigurationFile) {
  ServeConfig config;
  config.model = "folder";
  config.served_model_names = {"a", "b/c"};
  config.kv_tau = 0.125;
  config.metrics_auth = true;
  config.request_timeout = {std::chrono::milliseconds(1500)};
  config.kv_cache_memory = {66'000'001};
  for (const ServeConfig& each : {config, ServeConfig{}}) {
    const auto json = config_json(each);
    for (const auto& [key, value] : json.items()) EXPECT_FALSE(value.is_null()) << key;
    ServeConfig again;
    ASSERT_TRUE(apply_json(json.dump(), "f", again).ok()) << apply_json(json.dump(), "f", again);
    EXPECT_EQ(config_json(again), json);
  }
}

TEST(Config, FilesThatAreWrongAreToldApart) {
  const auto problem = [](const std::string& text) {
    ServeConfig config;
    return message(apply_json(text, "f.json", config));
  };
  EXPECT_NE(problem("{\"port\": 1,\n // twice\n \"port\": 2}").find("\"port\" occurs twice"), std::string::npos);
  EXPECT_EQ(problem("{\n  \"port\": 1,\n  oops}"), "f.json: not valid JSON at line 3, column 3");
  EXPECT_EQ(problem("{\"port\": 1"), "f.json: not valid JSON: it ends too early, at line 1, column 11");
  EXPECT_EQ(problem(""), "f.json: not valid JSON: it ends too early, at line 1, column 1");
  EXPECT_EQ(problem("{\"port\": 1e999}"), "f.json: holds a number that is too large");
  EXPECT_EQ(problem("[]"), "f.json: the configuration must be one JSON object");
  EXPECT_NE(message(load_config({"--config", ::testing::TempDir()}, {}).status()).find("is a folder"), std::string::npos);
  EXPECT_FALSE(load_config({"--config="}, {}).ok());
}

TEST(Config, AModelNameMustSaySomething) {
  EXPECT_FALSE(load_config({"--served-model-name", ""}, {}).ok());
  EXPECT_FALSE(load_config({}, {"ASSAY_SERVED_MODEL_NAME=a,,b"}).ok());
}

TEST(Config, HelpAndDocsNameEveryFlag) {
  const std::string help = serve_help(), docs = configuration_markdown();
  for (const Flag& flag : serve_flags()) {
    EXPECT_NE(help.find(flag.name), std::string::npos) << flag.name;
    EXPECT_NE(docs.find(variable_name(flag)), std::string::npos) << flag.name;
  }
  EXPECT_TRUE(load_config({"--help"}, {})->help);
}

TEST(Config, EngineGetsItsPart) {
  ServeConfig config;
  config.model = "m";
  config.load_format = "dummy";
  config.kv_cache_memory = {1 << 20};
  config.max_logprobs = 7;
  const EngineConfig engine = engine_config(config);
  EXPECT_TRUE(engine.dummy_weights);
  EXPECT_EQ(engine.kv_cache_memory_bytes, 1 << 20);
  EXPECT_EQ(engine.max_logprobs, 7);
}

}  // namespace
}  // namespace assay
