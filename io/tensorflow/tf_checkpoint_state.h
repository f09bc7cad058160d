// The file `checkpoint` of a folder, which names its checkpoints: a CheckpointState of TensorFlow
// as a text protocol buffer. Private to this room.
//
//   model_checkpoint_path: "model.ckpt-120"
//   all_model_checkpoint_paths: "model.ckpt-100"
//   all_model_checkpoint_paths: "model.ckpt-120"
#pragma once

#include <string>
#include <string_view>

namespace carole::io {

// Returns the path of the latest checkpoint, as it stands in the file. Takes all that the text
// format allows: both kinds of quotes, escapes, comments, lists and any blanks. Skips fields that
// it does not know. Throws DataError if the text is malformed or names no checkpoint; the error
// does not name the file.
std::string ParseCheckpointState(std::string_view text);

}  // namespace carole::io
