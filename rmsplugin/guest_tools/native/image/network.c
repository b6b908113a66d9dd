/* The guest's card, by the kernel's own requests: a program for each of them takes an emulated guest 30 ms. */

#include "image.h"

#include "base/files.h"
#include "base/texts.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAC_BYTES = 6, TRIES = 100, LOOK_US = 20000 };

void await_card(void)
{
    for (int tries = 0; !exists("/sys/class/net/" CARD) && tries < TRIES; tries++)
        usleep(LOOK_US);
}

static int any_socket(void)
{
    static int made = -1;
    return made >= 0 ? made : (made = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

static struct sockaddr inet_address(in_addr_t address)
{
    const struct sockaddr_in typed = {.sin_family = AF_INET, .sin_addr.s_addr = address};
    struct sockaddr any;
    memcpy(&any, &typed, sizeof any);
    return any;
}

static bool set_mac(const char *mac)
{
    struct ifreq card = {.ifr_name = CARD, .ifr_hwaddr.sa_family = ARPHRD_ETHER};
    unsigned char bytes[MAC_BYTES];
    int end = 0;
    if (sscanf(mac, "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx%n", bytes, bytes + 1, bytes + 2, bytes + 3, bytes + 4, bytes + 5,
               &end) != MAC_BYTES || mac[end] != '\0')
        return false;
    memcpy(card.ifr_hwaddr.sa_data, bytes, MAC_BYTES);
    return ioctl(any_socket(), SIOCSIFHWADDR, &card) == 0;
}

static void set_address(const char *address)
{
    struct ifreq card = {.ifr_name = CARD};
    struct in_addr number;
    off_t bits;
    if (inet_pton(AF_INET, field_of(address, '/', 1), &number) != 1 || !parse_number(field_of(address, '/', 2), &bits) || bits > 32)
        fail(1, "no address: %s", address);
    card.ifr_addr = inet_address(number.s_addr);
    if (ioctl(any_socket(), SIOCSIFADDR, &card) != 0)
        fail(1, "cannot have the address %s", address);
    card.ifr_netmask = inet_address(bits == 0 ? 0 : htonl(UINT32_MAX << (32 - bits)));
    ioctl(any_socket(), SIOCSIFNETMASK, &card);
}

void bring_up(const char *device)
{
    struct ifreq request = {0};
    strncpy(request.ifr_name, device, sizeof request.ifr_name - 1);
    if (ioctl(any_socket(), SIOCGIFFLAGS, &request) == 0) {
        request.ifr_flags |= IFF_UP;
        ioctl(any_socket(), SIOCSIFFLAGS, &request);
    }
}

static void add_gateway(const char *gateway)
{
    struct in_addr address;
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY, .rt_dst = inet_address(0), .rt_genmask = inet_address(0)};
    if (inet_pton(AF_INET, gateway, &address) != 1)
        return;
    route.rt_gateway = inet_address(address.s_addr);
    ioctl(any_socket(), SIOCADDRT, &route);
}

void set_network(const char *config)
{
    const char *address = value_of(config, "address"), *mac = value_of(config, "mac");
    if (*address == '\0')
        return;
    await_card();
    /* The card of a restored guest has the address that the template had; two with one address must not be. */
    if (*mac != '\0' && !set_mac(mac)) {
        reboot(RB_POWER_OFF);
        fail(1, "its card cannot have the address %s", mac);
    }
    set_address(address);
    /* A process that asks for this address hears of it at once, instead of asking again a second later. */
    write_file("/proc/sys/net/ipv4/conf/" CARD "/arp_notify", "1\n", 0644);
    bring_up(CARD);
    add_gateway(value_of(config, "gateway"));
}
