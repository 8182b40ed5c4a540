/* The start, the messages and the clock of a program on QEMU's Cortex-M4. With `-icount shift=0` an instruction
   takes a nanosecond, and a tick of the 25 MHz clock 40 of them. */
#include <stddef.h>
#include <stdint.h>

void start(void);
int network(unsigned char **result, size_t *bytes);

__attribute__((section(".vectors"), used)) static const uintptr_t vectors[2] = {0x20010000u, (uintptr_t)start};

#define REGISTER(address) (*(volatile uint32_t *)(address))

void *memset(void *to, int value, size_t n) {
    unsigned char *at = to;
    while (n--) *at++ = (unsigned char)value;
    return to;
}

void *memcpy(void *to, const void *from, size_t n) {
    unsigned char *at = to;
    const unsigned char *of = from;
    while (n--) *at++ = *of++;
    return to;
}

void __aeabi_memcpy(void *to, const void *from, size_t n) { memcpy(to, from, n); }
void __aeabi_memcpy4(void *to, const void *from, size_t n) { memcpy(to, from, n); }
void __aeabi_memcpy8(void *to, const void *from, size_t n) { memcpy(to, from, n); }
void __aeabi_memclr(void *to, size_t n) { memset(to, 0, n); }
void __aeabi_memclr4(void *to, size_t n) { memset(to, 0, n); }
void __aeabi_memclr8(void *to, size_t n) { memset(to, 0, n); }

static void host(uint32_t operation, const void *argument) {
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt #0xab" : "+r"(r0) : "r"(r1) : "memory");
}

static void print_hex(const unsigned char *bytes, size_t n) {
    for (size_t i = 0; i < 2 * n; i++) {
        unsigned digit = bytes[i / 2] >> (i % 2 ? 0 : 4) & 15;
        char text[2] = {(char)(digit < 10 ? '0' + digit : 'a' + digit - 10), 0};
        host(4, text);
    }
    host(4, "\n");
}

__attribute__((used)) static void run(void) {
    REGISTER(0xE000ED88u) |= 0xF00000u; /* the floating-point unit */
    __asm__ volatile("dsb\n isb");
    REGISTER(0xE000E014u) = 0xFFFFFFu;
    REGISTER(0xE000E018u) = 0;
    REGISTER(0xE000E010u) = 5;
    unsigned char *result;
    size_t bytes;
    uint32_t before = REGISTER(0xE000E018u);
    int failed = network(&result, &bytes);
    uint32_t ticks = (before - REGISTER(0xE000E018u)) & 0xFFFFFFu;
    print_hex(result, bytes);
    print_hex((const unsigned char *)&ticks, sizeof ticks);
    host(0x18, (const void *)(uintptr_t)(failed ? 0x20023 : 0x20026));
    for (;;) {
    }
}

__attribute__((naked)) void start(void) { __asm__ volatile("bl run"); }
