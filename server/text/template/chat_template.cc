#include "server/text/chat_template.h"

#include <ctime>

#include <nlohmann/json.hpp>

#include "server/text/template/content_parts.h"
#include "server/text/template/parser.h"
#include "server/text/template/render.h"

namespace assay {
namespace {

constexpr size_t kMaxTemplateBytes = 4 << 20;

std::tm local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

class JinjaTemplate : public ChatTemplate {
 public:
  explicit JinjaTemplate(jinja::Body body)
      : body_(std::move(body)), wants_content_parts_(jinja::iterates_content(body_)) {}

  absl::StatusOr<std::string> render(const nlohmann::ordered_json& variables) const override {
    return jinja::render(body_, variables, jinja::Limits{}, local_now());
  }

  bool wants_content_parts() const override { return wants_content_parts_; }

 private:
  jinja::Body body_;
  bool wants_content_parts_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return absl::InvalidArgumentError("chat template is larger than " + std::to_string(kMaxTemplateBytes) + " bytes");
  }
  try {
    std::shared_ptr<const ChatTemplate> made = std::make_shared<JinjaTemplate>(jinja::parse_template(source));
    return made;
  } catch (const jinja::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

}  // namespace assay
