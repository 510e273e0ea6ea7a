/* A driver of one GPU without the GPU: memory of the host, launches that the simulator runs. "Machine
   code" is the path of a library that the simulator has made, a zero byte, and a kernel's number. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { void* data; long long number; void* shadows; } Slot;
typedef struct { int blocks, threads; long long shared, order, seed, races, together; } How;
typedef struct { void* library; void (*kernel)(const Slot*); int parameters; } Function;
typedef struct { Function* function; int blocks, threads, shared, together; uint64_t values[256];
                 void *to, *from; size_t bytes; void (*call)(void*); void* data; } Work;
typedef struct { Work* work; int count; } Graph;

enum { MANY = 4096, FAILED = 999, NO_MEMORY = 2, INVALID = 1 };
static struct { char* start; size_t size; } memories[MANY];
static size_t held, most = (size_t)64 << 20;
static int counts[8]; /* launches, graph launches, captures, copies */
static Graph* capturing;
static double seconds;

int* fake_counts(void) { return counts; }
void fake_memory(size_t bytes) { most = bytes; }

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuDeviceGetCount(int* count) { *count = 1; return 0; }
int cuDeviceGet(int* device, int number) { *device = number; return 0; }
int cuDeviceGetName(char* name, int size, int device) { snprintf(name, size, "Fake GPU"); return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device)
{ *value = attribute == 75 ? 8 : attribute == 76 ? 0 : attribute == 16 ? 2 : 0; return 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { *context = counts; return 0; }
int cuCtxSetCurrent(void* context) { return 0; }
int cuStreamCreate(void** stream, unsigned flags) { *stream = counts; return 0; }
int cuStreamSynchronize(void* stream) { return capturing ? FAILED : 0; }

int cuMemAlloc(uint64_t* address, size_t size)
{
  if (held + size > most) return NO_MEMORY;
  for (int n = 0; n < MANY; n++)
    if (!memories[n].start) {
      memories[n].start = aligned_alloc(256, (size + 255) / 256 * 256);  // as a driver does
      memories[n].size = size, held += size;
      memset(memories[n].start, 0xFF, size);
      return *address = (uint64_t)memories[n].start, 0;
    }
  return NO_MEMORY;
}
int cuMemFree(uint64_t address)
{
  for (int n = 0; n < MANY; n++)
    if (memories[n].start == (char*)address)
      return held -= memories[n].size, free(memories[n].start), memories[n].start = NULL, 0;
  return INVALID;
}
int cuMemGetInfo(size_t* free, size_t* total) { *free = most - held, *total = most; return 0; }

static long long left(uint64_t address)
{
  for (int n = 0; n < MANY; n++)
    if (memories[n].start && address - (uint64_t)memories[n].start < memories[n].size)
      return memories[n].size - (address - (uint64_t)memories[n].start);
  return -1;
}

static int run(const Work* work)
{
  if (work->call) return seconds += 1e-3, work->call(work->data), 0;
  if (!work->function) {
    if (left((uint64_t)work->to) < (long long)work->bytes || left((uint64_t)work->from) < (long long)work->bytes)
      return INVALID;
    return memmove(work->to, work->from, work->bytes), counts[3]++, 0;
  }
  Slot slots[256];
  for (int n = 0; n < work->function->parameters; n++) {
    long long size = left(work->values[n]);
    slots[n] = (Slot){(void*)work->values[n], size < 0 ? (long long)work->values[n] : size, NULL};
  }
  How how = {work->blocks, work->threads, work->shared, 2, counts[0], 0, work->together};
  char message[256] = "";
  int (*simulate)(void*, Slot*, int, const How*, char*) = dlsym(work->function->library, "simulate");
  counts[0]++, seconds += 1e-3;
  int failed = simulate(work->function->kernel, slots, work->function->parameters, &how, message);
  if (failed) fprintf(stderr, "%s\n", message);
  return failed ? FAILED : 0;
}
static int queue(const Work* work)
{
  if (!capturing) return run(work);
  capturing->work = realloc(capturing->work, (capturing->count + 1) * sizeof *work);
  capturing->work[capturing->count++] = *work;
  return 0;
}

int fake_call(void (*call)(void*), void* data) /* of a library, on the stream */
{
  Work work = {.call = call, .data = data};
  return queue(&work);
}

int cuMemcpyHtoDAsync(uint64_t to, const void* from, size_t size, void* stream)
{
  if (capturing || left(to) < (long long)size) return INVALID;
  return memcpy((void*)to, from, size), 0;
}
int cuMemcpyDtoHAsync(void* to, uint64_t from, size_t size, void* stream)
{
  if (capturing || left(from) < (long long)size) return INVALID;
  return memcpy(to, (void*)from, size), 0;
}
int cuMemcpyDtoDAsync(uint64_t to, uint64_t from, size_t size, void* stream)
{
  Work work = {.to = (void*)to, .from = (void*)from, .bytes = size};
  return queue(&work);
}

int cuModuleLoadData(void** module, const void* image)
{
  const char* path = image;
  *module = NULL;
  void* library = dlopen(path, RTLD_NOW);
  if (!library) return FAILED;
  char name[64];
  snprintf(name, sizeof name, "simulated_%s", path + strlen(path) + 1);
  Function* made = malloc(sizeof *made);
  made->library = library;
  made->kernel = (void (*)(const Slot*))dlsym(library, name);
  strcat(name, "_parameters");
  int* parameters = dlsym(library, name);
  if (!made->kernel || !parameters) return FAILED;
  made->parameters = *parameters;
  return *module = made, 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) { *function = module; return 0; }
int cuFuncSetAttribute(void* function, int attribute, int value) { return 0; }
int cuLaunchKernel(Function* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned,
                   unsigned, unsigned shared, void* stream, void** values, void** extra)
{
  Work work = {function, x, threads, shared};
  for (int n = 0; n < function->parameters; n++) work.values[n] = *(uint64_t*)values[n];
  return queue(&work);
}
int cuLaunchCooperativeKernel(Function* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned,
                              unsigned, unsigned shared, void* stream, void** values)
{
  Work work = {function, x, threads, shared, 1};
  for (int n = 0; n < function->parameters; n++) work.values[n] = *(uint64_t*)values[n];
  return queue(&work);
}

int cuStreamBeginCapture(void* stream, int mode)
{
  counts[2]++;
  return capturing = calloc(1, sizeof *capturing), 0;
}
int cuStreamEndCapture(void* stream, void** graph) { *graph = capturing; capturing = NULL; return 0; }
int cuGraphInstantiateWithFlags(void** ready, void* graph, unsigned long long flags) { *ready = graph; return 0; }
int cuGraphDestroy(void* graph) { return 0; }
int cuGraphExecDestroy(Graph* graph) { free(graph->work), free(graph); return 0; }
int cuGraphLaunch(Graph* graph, void* stream)
{
  counts[1]++;
  for (int n = 0; n < graph->count; n++)
    if (run(&graph->work[n])) return FAILED;
  return 0;
}

int cuEventCreate(void** event, unsigned flags) { *event = calloc(1, sizeof(double)); return 0; }
int cuEventRecord(double* event, void* stream) { *event = seconds; return 0; }
int cuEventSynchronize(double* event) { return 0; }
int cuEventElapsedTime(float* ms, double* start, double* end) { *ms = 1e3 * (*end - *start); return 0; }
int cuEventDestroy(double* event) { free(event); return 0; }

/* the names with which the driver answers for these */
int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags, int* status)
{
  static void* self;
  Dl_info info;
  if (!self && dladdr((void*)cuInit, &info)) self = dlopen(info.dli_fname, RTLD_NOW);
  *function = strcmp(name, "cuGetProcAddress") ? dlsym(self, name) : (void*)cuGetProcAddress;
  if (status) *status = *function ? 0 : 1;
  return *function ? 0 : 500;
}
int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status)
{ return cuGetProcAddress(name, function, version, flags, status); }
