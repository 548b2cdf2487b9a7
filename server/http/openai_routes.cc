#include <fmt/format.h>

#include <ctime>

#include "server/http/error_reply.h"
#include "server/http/openai_reply.h"
#include "server/http/openai_request.h"
#include "server/http/routes.h"
#include "server/service/status.h"

namespace assay::http {
namespace {

using ParseFunction = absl::StatusOr<OpenAiRequest> (*)(const Json&);

absl::StatusOr<Reply> generate(const Lifecycle& lifecycle, const HttpRequest& http, ParseFunction parse) {
  absl::StatusOr<std::shared_ptr<TextService>> service = lifecycle.accepting();
  if (!service.ok()) return service.status();
  absl::StatusOr<Json> body = parse_json(http.body);
  if (!body.ok()) return body.status();
  absl::StatusOr<OpenAiRequest> request = parse(*body);
  if (!request.ok()) return request.status();
  request->generate.id = http.request_id;
  request->reply.id = (request->reply.chat ? "chatcmpl-" : "cmpl-") + http.request_id;
  request->reply.created = std::time(nullptr);
  request->reply.model = request->generate.model.empty() ? (*service)->model_names().front() : request->generate.model;
  absl::StatusOr<std::unique_ptr<Generation>> generation = (*service)->generate(request->generate);
  if (!generation.ok()) return generation.status();
  return make_openai_reply(std::move(*generation), std::move(request->reply));
}

Reply generate_or_error(const Lifecycle& lifecycle, const HttpRequest& http, ParseFunction parse) {
  absl::StatusOr<Reply> reply = generate(lifecycle, http, parse);
  return reply.ok() ? std::move(*reply) : error_reply(reply.status());
}

Json model_json(const TextService& service, const std::string& name, int64_t created) {
  return {{"id", name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "assay"},
          {"root", service.model_names().front()},
          {"parent", nullptr},
          {"max_model_len", service.engine().config().max_model_len}};
}

Reply list_models(const Lifecycle& lifecycle) {
  absl::StatusOr<std::shared_ptr<TextService>> service = lifecycle.alive();
  if (!service.ok()) return error_reply(service.status());
  Json list = {{"object", "list"}, {"data", Json::array()}};
  for (const std::string& name : (*service)->model_names()) {
    list["data"].push_back(model_json(**service, name, lifecycle.loaded_at()));
  }
  return json_reply(200, to_text(list));
}

Reply show_model(const Lifecycle& lifecycle, std::string_view path, std::string_view prefix) {
  absl::StatusOr<std::shared_ptr<TextService>> service = lifecycle.alive();
  if (!service.ok()) return error_reply(service.status());
  const std::string name(path.substr(prefix.size()));
  if (absl::Status status = (*service)->check_model(name); !status.ok()) return error_reply(status);
  return json_reply(200, to_text(model_json(**service, name, lifecycle.loaded_at())));
}

}  // namespace

std::vector<Route> openai_routes(const Lifecycle& lifecycle) {
  std::vector<Route> routes;
  const auto post = [&](const std::string& path, ParseFunction parse) {
    Route route{"POST", path};
    route.handler = [&lifecycle, parse](const HttpRequest& request) { return generate_or_error(lifecycle, request, parse); };
    routes.push_back(std::move(route));
  };
  post("/v1/completions", parse_completion_request);
  post("/v1/chat/completions", parse_chat_request);
  for (const std::string prefix : {"/v1/models", "/models"}) {
    Route list{"GET", prefix};
    list.quick = true;
    list.handler = [&lifecycle](const HttpRequest&) { return list_models(lifecycle); };
    routes.push_back(std::move(list));
    Route one{"GET", prefix + "/*"};
    one.quick = true;
    one.handler = [&lifecycle, prefix](const HttpRequest& request) {
      return show_model(lifecycle, request.path, prefix + "/");
    };
    routes.push_back(std::move(one));
  }
  return routes;
}

}  // namespace assay::http
