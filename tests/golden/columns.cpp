// Golden files have a column of doubles and one of fp32 values; those of nets too large for doubles
// have the latter only.
#include <string>

#include "tests/golden/check_net.h"

namespace carole::golden {

using nlohmann::json;

bool HasDoubles(const json& golden) { return golden["eval"].contains("logits_f64"); }

void TakeSinglesForDoubles(json& value) {
  json doubles = json::object();
  for (auto& [key, part] : value.items()) {
    if (part.is_structured()) TakeSinglesForDoubles(part);
    if (value.is_object() && key.ends_with("f32")) {
      doubles[key.substr(0, key.size() - 3) + "f64"] = part;
    } else if (value.is_object() && key == "samples") {
      for (json& sample : part) sample[1] = sample[2];  // index, f64, f32
    }
  }
  if (!doubles.empty()) value.update(doubles);
}

}  // namespace carole::golden
