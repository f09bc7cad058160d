// Parses TF_CONFIG, the JSON with which TensorFlow's cloud platforms tell each process of a job who
// it is:
//   {"cluster": {"chief": ["h0:2222"], "worker": ["h1:2222"], "ps": ["h0:2223"]},
//    "task": {"type": "worker", "index": 0}, "environment": "cloud"}
// "master" is another name for "chief". If there is neither, worker 0 leads. Parameter servers and
// the evaluator are not ranks. The evaluator may be missing in "cluster". An index may be a string.
#pragma once

#include <cstddef>
#include <string_view>

#include "launch/cluster/cluster.h"

namespace carole::launch {

inline constexpr size_t kMaxTfConfigBytes = 1 << 20;

// Returns whether the text is empty or white space, which counts as not set: some platforms always
// set the variable.
bool IsBlank(std::string_view text);

// Parses at most kMaxTfConfigBytes of text. A blank text, or one without a cluster or with an empty
// one, means this machine only. With num_gpus > 0 every host has this many slots. Throws
// ConfigError, whose text names the path in the JSON, what was found and what is allowed, if the
// text is not a valid TF_CONFIG.
Cluster ParseTfConfig(std::string_view text, int num_gpus);

}  // namespace carole::launch
