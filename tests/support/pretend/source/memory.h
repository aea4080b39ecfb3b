// The memory of the devices: the host's, but counted for each device, and with a limit.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>
#include <c10/util/Exception.h>

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

namespace pretend {

constexpr c10::DeviceIndex DEVICES = 2;
constexpr auto TYPE = c10::DeviceType::PrivateUse1;

inline thread_local c10::DeviceIndex current = 0;

inline void check_index(c10::DeviceIndex index) {
  TORCH_CHECK(0 <= index && index < DEVICES, "pretend: there is no device ", int(index), ", only 0 to ", DEVICES - 1);
}

inline c10::Device device_of(c10::DeviceIndex index) {
  return {TYPE, index < 0 ? current : index};
}

struct Usage {
  std::atomic<int64_t> allocated{0};
  std::atomic<int64_t> peak{0};
  std::atomic<int64_t> limit{0};  // 0: as much as the host has

  int64_t total() const {
    const auto most = limit.load();
    return most ? most : int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  }

  int64_t free() const { return std::max<int64_t>(0, total() - allocated.load()); }

  void take(c10::DeviceIndex index, int64_t bytes) {
    const auto now = allocated.fetch_add(bytes) + bytes;
    const auto most = limit.load();
    if (bytes > 0 && most && now > most) {
      allocated.fetch_sub(bytes);
      refuse(index, bytes);
    }
    auto before = peak.load();
    while (before < now && !peak.compare_exchange_weak(before, now)) {
    }
  }

  void give_back(int64_t bytes) { allocated.fetch_sub(bytes); }

 private:
  static std::string written(int64_t bytes) {
    static const char* const units[] = {"bytes", "KiB", "MiB", "GiB"};
    double size = double(bytes);
    int unit = 0;
    for (; size >= 1024 && unit < 3; ++unit) size /= 1024;
    char text[32];
    std::snprintf(text, sizeof text, unit ? "%.2f %s" : "%.0f %s", size, units[unit]);
    return text;
  }

  // The words of CUDA's allocator, as programs are known to look for them.
  [[noreturn]] void refuse(c10::DeviceIndex index, int64_t bytes) const {
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, "pretend out of memory. Tried to allocate ", written(bytes), ". Device ", int(index),
        " has a total capacity of ", written(total()), " of which ", written(free()),
        " is free. Of the allocated memory ", written(allocated.load()), " is allocated by PyTorch.");
  }
};

inline Usage usage[DEVICES];

// What the DataPtr of a device's storage keeps: a storage of the host with the same memory. Every tensor of the
// device that shares its storage is so lent to the CPU's kernels as a tensor that shares the host's, and what they
// check and promise about overlapping memory and views holds for the device too.
struct Block {
  c10::Storage host;
  const c10::DeviceIndex index;
  int64_t bytes = 0;

  Block(c10::Storage host, c10::DeviceIndex index) : host(std::move(host)), index(index) { resize(); }
  ~Block() { usage[index].give_back(bytes); }

  // Count what the host's storage has now.
  void resize() {
    const auto now = int64_t(host.nbytes());
    if (now > bytes) {
      usage[index].take(index, now - bytes);
    } else {
      usage[index].give_back(bytes - now);
    }
    bytes = now;
  }

  static void drop(void* block) { delete static_cast<Block*>(block); }

  static Block& of(const c10::Storage& storage) {
    const auto& pointer = storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
    TORCH_CHECK(pointer.get_deleter() == &drop, "pretend: memory that the device hasn't allocated");
    return *static_cast<Block*>(pointer.get_context());
  }
};

inline c10::DataPtr pointer_to(c10::Storage host, c10::DeviceIndex index) {
  auto* block = new Block(std::move(host), index);
  return {block->host.mutable_data(), block, &Block::drop, c10::Device(TYPE, index)};
}

// The host's own allocator: some kernels sum in an order that depends on how memory is aligned.
inline c10::Storage host_memory(size_t bytes) {
  auto* allocator = c10::GetAllocator(c10::kCPU);
  return {c10::Storage::use_byte_size_t(), bytes, allocator->allocate(bytes), allocator, /*resizable=*/true};
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const auto index = current;
    // Refuse before the host is asked: a test may want more than the host has, to see it refused.
    usage[index].take(index, int64_t(bytes));
    usage[index].give_back(int64_t(bytes));
    return pointer_to(host_memory(bytes), index);
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    check_index(index);
    c10::CachingDeviceAllocator::DeviceStats stats;
    auto& bytes = stats.allocated_bytes[0];
    bytes.current = usage[index].allocated.load();
    bytes.peak = usage[index].peak.load();
    stats.reserved_bytes[0] = bytes;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex index) override {
    check_index(index);
    usage[index].peak = usage[index].allocated.load();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    check_index(index);
    return {usage[index].free(), usage[index].total()};
  }
};

inline Allocator allocator;

// Pinned memory of the host: nothing is faster with it here, but tensors must know that they have been pinned.
struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    auto* memory = new c10::DataPtr(c10::GetAllocator(c10::kCPU)->allocate(bytes));
    const std::lock_guard hold(lock);
    pinned.insert(memory->get());
    return {memory->get(), memory, &drop, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  static bool has(const void* data) {
    const std::lock_guard hold(lock);
    return data && pinned.count(data);
  }

 private:
  static void drop(void* context) {
    auto* memory = static_cast<c10::DataPtr*>(context);
    {
      const std::lock_guard hold(lock);
      pinned.erase(memory->get());
    }
    delete memory;
  }

  static inline std::mutex lock;
  static inline std::set<const void*> pinned;
};

inline PinnedAllocator pinned_allocator;

}  // namespace pretend
