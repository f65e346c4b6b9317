/* A libnvidia-ml.so without a GPU: the part of NVML's ABI that driftwatch calls, told what to
 * answer by the file that NVML_STAND_IN names. It is read anew at every call. Lines:
 *
 *   gpus 2                          how many there are
 *   value NAME DEVICE NUMBER        what a quantity is
 *   text NAME DEVICE TEXT           the same for text, up to the end of the line
 *   call FUNCTION DEVICE error 3    the function answers this error
 *   call FUNCTION DEVICE hang       it answers when the line is gone
 *   mig 0 PLACE GI CI PROFILE       a MIG instance; PROFILE "-" = the name does not tell
 *   pid DEVICE PID                  a process that computes there
 *   log PATH                        note the name of every function called there
 *
 * DEVICE is "0", the MIG instance "0:PLACE", or "*"; FUNCTION may be "*". A later line wins.
 * Handles of before nvmlShutdown are refused. Compiled with -DOLD_DRIVER it lacks what drivers
 * before 535 lack. Written from NVML's public reference; no text of nvml.h is in it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, VERSION_MISMATCH = 25 };
enum { GPUS = 16, PLACES = 8, LINE = 256 };

struct device { int gpu, place, generation; char name[16]; };
struct sample { double taken; };

static struct device devices[GPUS][PLACES + 1];
static int started, generation;

/* Calls `take` for every line; it may keep what it finds in `found`. */
static void each_line(void (*take)(char *line, void *found), void *found)
{
    const char *path = getenv("NVML_STAND_IN");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[LINE];
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        take(line, found);
    }
    fclose(file);
}

static int is_of(const char *said, const char *asked)
{
    return !strcmp(said, "*") || !strcmp(said, asked);
}

struct looked { const char *name, *device; double number; char text[LINE]; int error, hangs; };

static void take_value(char *line, void *found)
{
    struct looked *looked = found;
    char name[96], device[16];
    double number;
    if (sscanf(line, "value %95s %15s %lf", name, device, &number) == 3
        && is_of(name, looked->name) && is_of(device, looked->device))
        looked->number = number;
}

static double value(const char *name, const char *device, double otherwise)
{
    struct looked looked = {name, device, otherwise, "", 0, 0};
    each_line(take_value, &looked);
    return looked.number;
}

static void take_text(char *line, void *found)
{
    struct looked *looked = found;
    char name[96], device[16];
    int at = 0;
    if (sscanf(line, "text %95s %15s %n", name, device, &at) == 2 && at
        && is_of(name, looked->name) && is_of(device, looked->device))
        snprintf(looked->text, LINE, "%s", line + at);
}

static void text(const char *name, const char *device, const char *otherwise, char *into, unsigned n)
{
    struct looked looked = {name, device, 0, "", 0, 0};
    each_line(take_text, &looked);
    snprintf(into, n, "%s", looked.text[0] ? looked.text : otherwise);
}

static void take_call(char *line, void *found)
{
    struct looked *looked = found;
    char name[96], device[16], what[16];
    int error = 0;
    if (sscanf(line, "call %95s %15s %15s %d", name, device, what, &error) >= 3
        && is_of(name, looked->name) && is_of(device, looked->device)) {
        looked->error = error;
        looked->hangs = !strcmp(what, "hang");
    }
}

static void take_log(char *line, void *found)
{
    char path[LINE];
    FILE *log = sscanf(line, "log %255s", path) == 1 ? fopen(path, "a") : NULL;
    if (!log) return;
    fprintf(log, "%s\n", (const char *)found);
    fclose(log);
}

/* The error of this call now; returns only when the call does not hang (any more). */
static int told(const char *function, const char *device)
{
    each_line(take_log, (void *)function);
    for (;;) {
        struct looked looked = {function, device, 0, "", 0, 0};
        each_line(take_call, &looked);
        if (!looked.hangs) return looked.error;
        usleep(5000);
    }
}

static int ready(const char *function, const struct device *device)
{
    int error = told(function, device ? device->name : "-");
    if (error) return error;
    if (!started) return UNINITIALIZED;
    return device && device->generation != generation ? INVALID_ARGUMENT : OK;
}
#define READY(device) do { int e = ready(__func__, device); if (e) return e; } while (0)
/* what a MIG instance has no answer for */
#define WHOLE(device) do { if ((device)->place >= 0) return NOT_SUPPORTED; } while (0)

static struct device *handle(int gpu, int place)
{
    struct device *device = &devices[gpu][place + 1];
    device->gpu = gpu;
    device->place = place;
    device->generation = generation;
    if (place < 0) snprintf(device->name, sizeof device->name, "%d", gpu);
    else snprintf(device->name, sizeof device->name, "%d:%d", gpu, place);
    return device;
}

struct instance { int gpu, place, gi, ci, there, count; char profile[32]; };

static void take_instance(char *line, void *found)
{
    struct instance *wanted = found;
    int gpu, place, gi, ci;
    char profile[32];
    if (sscanf(line, "mig %d %d %d %d %31s", &gpu, &place, &gi, &ci, profile) != 5
        || gpu != wanted->gpu) return;
    wanted->count++;
    if (place != wanted->place) return;
    wanted->gi = gi;
    wanted->ci = ci;
    wanted->there = 1;
    snprintf(wanted->profile, sizeof wanted->profile, "%s", profile);
}

static struct instance instance(const struct device *device)
{
    struct instance found = {device->gpu, device->place, 0, 0, 0, 0, ""};
    each_line(take_instance, &found);
    return found;
}

int nvmlInitWithFlags(unsigned flags)
{
    int error = told(__func__, "-");
    (void)flags;
    if (error) return error;
    if (!started++) generation++;
    return OK;
}

int nvmlShutdown(void)
{
    if (!started) return UNINITIALIZED;
    started--;
    return OK;
}

static void take_gpus(char *line, void *found) { sscanf(line, "gpus %u", (unsigned *)found); }

int nvmlDeviceGetCount_v2(unsigned *count)
{
    READY(NULL);
    *count = 0;
    each_line(take_gpus, count);
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device)
{
    unsigned count = 0;
    each_line(take_gpus, &count);
    struct device *one = handle((int)index, -1);
    READY(one);
    if (index >= count) return INVALID_ARGUMENT;
    *device = one;
    return OK;
}

int nvmlDeviceGetUUID(struct device *device, char *into, unsigned n)
{
    char otherwise[64];
    READY(device);
    snprintf(otherwise, sizeof otherwise, "GPU-00000000-0000-0000-0000-%012d", device->gpu);
    text("uuid", device->name, otherwise, into, n);
    return OK;
}

int nvmlDeviceGetName(struct device *device, char *into, unsigned n)
{
    READY(device);
    if (device->place < 0) {
        text("name", device->name, "Stand-in GPU", into, n);
    } else {
        struct instance found = instance(device);
        if (!strcmp(found.profile, "-")) snprintf(into, n, "Stand-in GPU");
        else snprintf(into, n, "Stand-in GPU MIG %s", found.profile);
    }
    return OK;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

int nvmlDeviceGetPciInfo_v3(struct device *device, struct pci *pci)
{
    READY(device);
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", 0x3b + device->gpu);
    return OK;
}

struct utilization { unsigned gpu, memory; };

int nvmlDeviceGetUtilizationRates(struct device *device, struct utilization *rates)
{
    READY(device);
    WHOLE(device);
    rates->gpu = (unsigned)value("utilization", device->name, 0);
    rates->memory = (unsigned)value("memory_utilization", device->name, 0);
    return OK;
}

struct memory { unsigned long long total, free, used; };

int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory)
{
    READY(device);
    memory->total = (unsigned long long)value("total", device->name, 0);
    memory->free = (unsigned long long)value("free", device->name, 0);
    memory->used = memory->total - memory->free;
    return OK;
}

#ifndef OLD_DRIVER
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *memory)
{
    READY(device);
    if (memory->version != (sizeof *memory | 2u << 24)) return VERSION_MISMATCH;
    memory->total = (unsigned long long)value("total", device->name, 0);
    memory->reserved = (unsigned long long)value("reserved", device->name, 0);
    memory->free = (unsigned long long)value("free", device->name, 0);
    memory->used = memory->total - memory->free - memory->reserved;
    return OK;
}

int nvmlDeviceGetCurrentClocksEventReasons(struct device *device, unsigned long long *reasons)
{
    READY(device);
    WHOLE(device);
    *reasons = (unsigned long long)value("clock_reasons", device->name, 0);
    return OK;
}
#else
int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *device, unsigned long long *reasons)
{
    READY(device);
    WHOLE(device);
    *reasons = (unsigned long long)value("clock_reasons", device->name, 0);
    return OK;
}
#endif

int nvmlDeviceGetClockInfo(struct device *device, unsigned type, unsigned *megahertz)
{
    READY(device);
    WHOLE(device);
    if (type != 1 && type != 2) return INVALID_ARGUMENT;
    *megahertz = (unsigned)value(type == 1 ? "sm_clock" : "memory_clock", device->name, 0);
    return OK;
}

int nvmlDeviceGetPowerUsage(struct device *device, unsigned *milliwatts)
{
    READY(device);
    WHOLE(device);
    *milliwatts = (unsigned)value("power", device->name, 0);
    return OK;
}

int nvmlDeviceGetTotalEnergyConsumption(struct device *device, unsigned long long *millijoules)
{
    READY(device);
    WHOLE(device);
    *millijoules = (unsigned long long)value("energy", device->name, 0);
    return OK;
}

#ifndef OLD_DRIVER
struct temperature { unsigned version, sensor; int celsius; };

int nvmlDeviceGetTemperatureV(struct device *device, struct temperature *temperature)
{
    READY(device);
    WHOLE(device);
    if (temperature->sensor != 0) return INVALID_ARGUMENT;
    temperature->celsius = (int)value("temperature", device->name, 0);
    return OK;
}
#else
int nvmlDeviceGetTemperature(struct device *device, unsigned sensor, unsigned *celsius)
{
    READY(device);
    WHOLE(device);
    if (sensor != 0) return INVALID_ARGUMENT;
    *celsius = (unsigned)value("temperature", device->name, 0);
    return OK;
}
#endif

int nvmlDeviceGetMigMode(struct device *device, unsigned *current, unsigned *pending)
{
    READY(device);
    double mode = value("mig_mode", device->name, -1);
    if (mode < 0) return NOT_SUPPORTED;
    *current = *pending = (unsigned)mode;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned *count)
{
    READY(device);
    *count = PLACES;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned place, struct device **mig)
{
    READY(device);
    if (place >= PLACES) return INVALID_ARGUMENT;
    struct device *one = handle(device->gpu, (int)place);
    if (!instance(one).there) return NOT_FOUND;
    *mig = one;
    return OK;
}

int nvmlDeviceGetGpuInstanceId(struct device *device, unsigned *id)
{
    READY(device);
    *id = (unsigned)instance(device).gi;
    return OK;
}

int nvmlDeviceGetComputeInstanceId(struct device *device, unsigned *id)
{
    READY(device);
    *id = (unsigned)instance(device).ci;
    return OK;
}

struct attributes { unsigned sms, copy, decoders, encoders, jpeg, ofa, gi_slices, ci_slices;
                    unsigned long long megabytes; };

int nvmlDeviceGetAttributes_v2(struct device *device, struct attributes *attributes)
{
    READY(device);
    memset(attributes, 0, sizeof *attributes);
    attributes->gi_slices = (unsigned)value("slices", device->name, 1);
    attributes->megabytes = (unsigned long long)value("megabytes", device->name, 0);
    return OK;
}

struct process { unsigned pid; unsigned long long memory; unsigned gi, ci; };
struct processes { const char *device; unsigned count, room; struct process *into; };

static void take_process(char *line, void *found)
{
    struct processes *processes = found;
    char device[16];
    unsigned pid;
    if (sscanf(line, "pid %15s %u", device, &pid) != 2 || !is_of(device, processes->device)) return;
    if (processes->count < processes->room) {
        memset(&processes->into[processes->count], 0, sizeof *processes->into);
        processes->into[processes->count].pid = pid;
    }
    processes->count++;
}

static int running(struct device *device, unsigned *count, struct process *into)
{
    struct processes found = {device->name, 0, into ? *count : 0, into};
    each_line(take_process, &found);
    *count = found.count;
    return found.count > found.room ? INSUFFICIENT_SIZE : OK;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetComputeRunningProcesses_v3(struct device *d, unsigned *n, struct process *into)
#else
int nvmlDeviceGetComputeRunningProcesses_v2(struct device *d, unsigned *n, struct process *into)
#endif
{
    READY(d);
    return running(d, n, into);
}

#ifndef OLD_DRIVER
struct metric { unsigned id; int result; double value; const char *short_name, *long_name, *unit; };
struct metrics { unsigned version, count; struct sample *before, *after; struct metric metrics[]; };
struct support { unsigned version, supported; };

int nvmlGpmQueryDeviceSupport(struct device *device, struct support *support)
{
    READY(device);
    support->supported = (unsigned)value("gpm", device->name, 0);
    return OK;
}

int nvmlGpmSampleAlloc(struct sample **sample)
{
    READY(NULL);
    *sample = calloc(1, sizeof **sample);
    return OK;
}

int nvmlGpmSampleFree(struct sample *sample)
{
    READY(NULL);
    free(sample);
    return OK;
}

int nvmlGpmSampleGet(struct device *device, struct sample *sample)
{
    READY(device);
    sample->taken = value("gpm_sample", device->name, 0);
    return OK;
}

int nvmlGpmMigSampleGet(struct device *device, unsigned gi, struct sample *sample)
{
    READY(device);
    sample->taken = value("gpm_sample", device->name, 0) + 1000.0 * gi;
    return OK;
}

/* Each metric is the difference of the samples plus its number: both samples and the order of the
 * metrics show in it. */
int nvmlGpmMetricsGet(struct metrics *asked)
{
    READY(NULL);
    if (asked->version != 1 || !asked->before || !asked->after) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < asked->count; i++) {
        char name[32];
        snprintf(name, sizeof name, "gpm_result_%u", asked->metrics[i].id);
        asked->metrics[i].result = (int)value(name, "*", OK);
        asked->metrics[i].value = asked->after->taken - asked->before->taken + asked->metrics[i].id;
    }
    return OK;
}
#endif
