#include "src/backend/staged_inputs.h"

namespace carole {
namespace {

class StagedInputs : public InputBuffers {
 public:
  StagedInputs(const Backend& backend, UploadQueue& queue,
               const std::function<DeviceMemory(size_t bytes)>& allocate_on_host,
               const std::vector<std::span<std::byte>>& inputs)
      : backend_(backend), queue_(queue) {
    for (const std::span<std::byte> input : inputs) {
      inputs_.push_back({.on_host = allocate_on_host(input.size()),
                         .on_device = backend.Allocate(input.size()),
                         .input = input});
    }
    queue.EndReading();  // the first copies must come after the kernels that zero this memory
  }

  std::byte* HostMemory(size_t index) override {
    queue_.WaitOnHost();
    return inputs_[index].on_host.get();
  }
  void Upload() override {
    for (const Input& i : inputs_) queue_.Copy(i.on_device.get(), i.on_host.get(), i.input.size());
    queue_.BeginReading();
    for (const Input& i : inputs_) backend_.Copy(i.input.data(), i.on_device.get(), i.input.size());
    queue_.EndReading();
  }

 private:
  struct Input {
    DeviceMemory on_host, on_device;
    std::span<std::byte> input;
  };

  const Backend& backend_;
  UploadQueue& queue_;
  std::vector<Input> inputs_;
};

}  // namespace

std::unique_ptr<InputBuffers> MakeStagedInputs(
    const Backend& backend, UploadQueue& queue,
    const std::function<DeviceMemory(size_t bytes)>& allocate_on_host,
    const std::vector<std::span<std::byte>>& inputs) {
  return std::make_unique<StagedInputs>(backend, queue, allocate_on_host, inputs);
}

}  // namespace carole
