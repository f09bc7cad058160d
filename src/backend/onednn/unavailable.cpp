// Replaces the oneDNN backend if the program is built without the library.
#include "src/backend/backend.h"
#include "src/core/error.h"

namespace carole {

bool OneDnnAvailable() { return false; }

std::unique_ptr<Backend> MakeOneDnnBackend(int) {
  throw ConfigError("[backend] onednn: this program was built without oneDNN; use " +
                    Option("backend", "reference") + ", or build with oneDNN 3");
}

}  // namespace carole
