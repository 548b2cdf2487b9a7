#include "server/sweep/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <sstream>

namespace assay::sweep {
namespace {

absl::Status check_lengths(const SweepOptions& o) {
  if (o.shared_prefix_tokens >= o.input_tokens) {
    return absl::InvalidArgumentError("--shared-prefix-len must be smaller than --input-len");
  }
  if (!o.dataset_file.empty() && !o.prompt_file.empty()) {
    return absl::InvalidArgumentError("--dataset and --prompt-file: give one of the two");
  }
  if (o.shared_prefix_tokens > 0 && (!o.dataset_file.empty() || !o.prompt_file.empty())) {
    return absl::InvalidArgumentError("--shared-prefix-len is for made prompts, not for --dataset or --prompt-file");
  }
  return absl::OkStatus();
}

absl::Status check_load(const SweepOptions& o) {
  if (o.rate_mode() && o.concurrency.size() > 1) {
    return absl::InvalidArgumentError("--request-rate: --concurrency is the cap then, give at most one value");
  }
  for (const double rate : o.request_rates) {
    if (!(rate > 0.0) || !std::isfinite(rate)) return absl::InvalidArgumentError("--request-rate must be positive");
  }
  if (!(o.burstiness > 0.0) || !std::isfinite(o.burstiness)) {
    return absl::InvalidArgumentError("--burstiness must be positive");
  }
  if (o.requests_per_level > 0 && o.seconds > 0.0) {
    return absl::InvalidArgumentError("--requests-per-level and --seconds: give one of the two");
  }
  return absl::OkStatus();
}

absl::Status finish_options(SweepOptions* o) {
  if (!o->rate_mode() && o->concurrency.empty()) o->concurrency = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  absl::StatusOr<Target> target = parse_url(o->url);
  if (!target.ok()) return target.status();
  o->target = *std::move(target);
  if (!o->grpc_address.empty() && !parse_url("http://" + o->grpc_address).ok()) {
    return absl::InvalidArgumentError("--grpc \"" + o->grpc_address + "\": write HOST:PORT, e.g. 127.0.0.1:8001");
  }
  absl::StatusOr<GoodputLimits> goodput = parse_goodput(o->goodput_texts);
  if (!goodput.ok()) return goodput.status();
  o->goodput = *goodput;
  if (absl::Status status = check_lengths(*o); !status.ok()) return status;
  return check_load(*o);
}

void add_load_flags(CLI::App* app, SweepOptions* o) {
  app->add_option("--url", o->url, "Server, http://HOST:PORT")->capture_default_str();
  app->add_option("--grpc", o->grpc_address,
                  "HOST:PORT of assay.v1.Inference: the load goes there, --url answers what is asked beside it");
  app->add_option("--concurrency", o->concurrency,
                  "Requests in flight, one level each [1,2,4,...,512]; with --request-rate the cap")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536));
  app->add_option("--request-rate", o->request_rates,
                  "Requests per second, one level each: sent when due, whatever the server does")
      ->delimiter(',');
  app->add_option("--burstiness", o->burstiness, "Gamma shape of the gaps: 1 = Poisson, smaller = burstier")
      ->capture_default_str();
  app->add_option("--requests-per-level", o->requests_per_level, "Requests of a level [4 x concurrency, at least 16]")
      ->check(CLI::PositiveNumber);
  app->add_option("--seconds", o->seconds, "Length of a level instead; what runs then is finished [30 in rate mode]")
      ->check(CLI::PositiveNumber);
  app->add_option("--warmup", o->warmup, "Requests before each level that do not count")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app->add_option("--timeout", o->timeout_s, "Seconds until a request is given up")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
}

void add_request_flags(CLI::App* app, SweepOptions* o) {
  app->add_option("--input-len", o->input_tokens, "Prompt tokens by the server's tokenizer")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app->add_option("--output-len", o->output_tokens, "Tokens to generate")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app->add_option("--shared-prefix-len", o->shared_prefix_tokens, "Prompt tokens that all requests share")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app->add_option("--dataset", o->dataset_file, "JSONL file of {\"prompt\"} or {\"messages\"} lines")
      ->check(CLI::ExistingFile);
  app->add_option("--prompt-file", o->prompt_file, "Text file, sent after a distinct first line")
      ->check(CLI::ExistingFile);
  auto* chat = app->add_flag("--chat", o->chat, "Use /v1/chat/completions");
  app->add_flag_function(
         "--completions", [](int64_t) {}, "Use /v1/completions (the default)")
      ->excludes(chat);
  app->add_option("--model", o->model, "Model name [the first that the server lists]");
  app->add_option("--api-key", o->api_key, "Sent as a bearer token")->envname("ASSAY_API_KEY");
  app->add_option("--seed", o->seed, "Of the prompts and arrivals")->capture_default_str();
  app->add_flag("--openai-fields-only", o->openai_fields_only,
                "Send no extension (ignore_eos, cache_salt, return_token_ids): for servers that refuse unknown fields");
  app->add_flag("--certificate", o->certificate, "Ask for and add up the server's certificates");
}

void add_report_flags(CLI::App* app, SweepOptions* o) {
  app->add_option("--goodput", o->goodput_texts, "Limits in ms that a good request keeps: ttft:500 tpot:50 e2el:20000")
      ->delimiter(',');
  app->add_option("--output", o->output_dir, "Folder for results.json, results.csv, frontier.svg");
  app->add_option("--label", o->label, "Name of this run in the figure [the model's name]");
}

}  // namespace

absl::StatusOr<Target> parse_url(const std::string& url) {
  Target target;
  std::string rest = url;
  if (rest.starts_with("http://")) {
    rest.erase(0, 7);
  } else if (rest.starts_with("https://")) {
    target.tls = true;
    rest.erase(0, 8);
  } else {
    return absl::InvalidArgumentError("--url must start with http:// or https://, e.g. http://127.0.0.1:8000");
  }
  const size_t slash = rest.find('/');
  if (slash != std::string::npos) target.base_path = rest.substr(slash);
  rest.resize(std::min(slash, rest.size()));
  const size_t bracket = rest.rfind(']');  // [::1]:8000
  const size_t colon = rest.find(':', bracket == std::string::npos ? 0 : bracket);
  target.host = rest.substr(0, colon);
  target.port = colon == std::string::npos ? (target.tls ? "443" : "80") : rest.substr(colon + 1);
  if (target.host.starts_with('[') && target.host.ends_with(']'))
    target.host = target.host.substr(1, target.host.size() - 2);
  uint16_t number = 0;
  const auto parsed = std::from_chars(target.port.data(), target.port.data() + target.port.size(), number);
  const bool port_ok = parsed.ec == std::errc() && parsed.ptr == target.port.data() + target.port.size() && number > 0;
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) <= ' '; };
  if (target.host.empty() || !port_ok || std::any_of(url.begin(), url.end(), is_control)) {
    return absl::InvalidArgumentError("--url \"" + url + "\": no host or no valid port, e.g. http://127.0.0.1:8000");
  }
  while (target.base_path.ends_with('/')) target.base_path.pop_back();
  if (target.base_path.ends_with("/v1")) target.base_path.resize(target.base_path.size() - 3);
  return target;
}

absl::StatusOr<GoodputLimits> parse_goodput(const std::vector<std::string>& limits) {
  GoodputLimits parsed;
  for (const std::string& limit : limits) {
    const size_t colon = limit.find(':');
    const std::string name = limit.substr(0, colon);
    const std::string text = colon == std::string::npos ? "" : limit.substr(colon + 1);
    double value = 0.0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
    std::optional<double>* field = name == "ttft"   ? &parsed.ttft_ms
                                   : name == "tpot" ? &parsed.tpot_ms
                                   : name == "e2el" ? &parsed.e2el_ms
                                                    : nullptr;
    if (field == nullptr || end.ec != std::errc() || end.ptr != text.data() + text.size() || !(value > 0.0)) {
      return absl::InvalidArgumentError("--goodput \"" + limit + "\": write NAME:MILLISECONDS with ttft, tpot or e2el");
    }
    *field = value;
  }
  return parsed;
}

std::variant<Command, int> parse_options(int argc, char** argv) {
  SweepOptions sweep;
  CompareOptions compare;
  CLI::App app{"Measures an OpenAI-compatible server at several levels of load.", "assay sweep"};
  add_load_flags(&app, &sweep);
  add_request_flags(&app, &sweep);
  add_report_flags(&app, &sweep);
  CLI::App* comparison = app.add_subcommand("compare", "Lays results of several runs over each other");
  comparison->add_option("files", compare.files, "results.json of each run")->required()->check(CLI::ExistingFile);
  comparison->add_option("--output", compare.output_dir, "Folder for frontier.svg");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (comparison->parsed()) return Command{compare};
  if (absl::Status status = finish_options(&sweep); !status.ok()) {
    std::fprintf(stderr, "assay sweep: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  return Command{sweep};
}

}  // namespace assay::sweep
