// TF_CONFIG, the JSON with which TensorFlow's clouds tell each process of a job who it is:
//   {"cluster": {"chief": ["h0:2222"], "worker": ["h1:2222"], "ps": ["h0:2223"]},
//    "task": {"type": "worker", "index": 0}, "environment": "cloud"}
// "master" and "chief" mean the same; worker 0 leads when there is neither; parameter servers and
// the evaluator are no ranks. The evaluator need not be in the cluster. An index may be a string.
#pragma once

#include <cstddef>
#include <string_view>

#include "launch/cluster/cluster.h"

namespace carole::launch {

inline constexpr size_t kMaxTfConfigBytes = 1 << 20;

// Whether nobody has said anything; some platforms set the variable all the same.
bool IsBlank(std::string_view text);

// `text` has at most kMaxTfConfigBytes. No text, no cluster or an empty one: this machine alone.
// num_gpus > 0: slots of every machine. Throws ConfigError whose text names the place in the JSON,
// what was found and what is allowed.
Cluster ParseTfConfig(std::string_view text, int num_gpus);

}  // namespace carole::launch
