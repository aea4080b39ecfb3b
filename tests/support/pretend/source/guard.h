// Which device is current, in each thread, and what PyTorch asks a backend. Work is done at once, so streams and
// events are names without anything behind them.
#pragma once

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "counts.h"
#include "memory.h"

namespace pretend {

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return TYPE; }
  c10::Device exchangeDevice(c10::Device to) const override {
    const auto before = getDevice();
    setDevice(to);
    return before;
  }
  c10::Device getDevice() const override { return {TYPE, current}; }
  void setDevice(c10::Device to) const override {
    if (to.has_index()) {
      check_index(to.index());
      current = to.index();
    }
  }
  void uncheckedSetDevice(c10::Device to) const noexcept override {
    if (to.has_index()) current = to.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }

  c10::Stream getStream(c10::Device of) const override { return stream(of); }
  c10::Stream getDefaultStream(c10::Device of) const override { return stream(of); }
  c10::Stream getStreamFromGlobalPool(c10::Device of, bool) const override { return stream(of); }
  c10::Stream getNewStream(c10::Device of, int) const override { return stream(of); }
  c10::Stream exchangeStream(c10::Stream of) const override { return stream(of.device()); }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { count(counts.scalars); }
  void synchronizeDevice(c10::DeviceIndex) const override { count(counts.scalars); }

  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    static char something;  // an event that has been recorded isn't null
    *event = &something;
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override { count(counts.scalars); }
  double elapsedTime(void*, void*, c10::DeviceIndex) const override { return 0; }

 private:
  static c10::Stream stream(c10::Device of) { return c10::Stream(c10::Stream::DEFAULT, device_of(of.index())); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return DEVICES; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex to) const override {
    check_index(to);
    current = to;
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex to) const override {
    const auto before = current;
    setCurrentDevice(to);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex to) const override {
    return to < 0 ? current : exchangeDevice(to);
  }
  bool isPinnedPtr(const void* data) const override { return PinnedAllocator::has(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }

  // There is no generator: its numbers wouldn't be those of another device, so a program that draws on it is told.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { refuse(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { refuse(); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    const auto index = storage.device().index();
    auto memory = pointer_to(host_memory(bytes), index);
    const auto kept = std::min(bytes, storage.nbytes());
    std::copy_n(static_cast<const char*>(storage.data()), kept, static_cast<char*>(memory.get()));
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(memory));
    storage.set_nbytes(bytes);
  }

 private:
  [[noreturn]] static void refuse() {
    TORCH_CHECK(false, "pretend: the device has no random generator; draw on the CPU and send what is drawn");
  }
};

}  // namespace pretend
