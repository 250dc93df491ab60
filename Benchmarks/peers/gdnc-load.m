/* A load on GNUstep's gdnc, with NSDistributedNotificationCenter. A burst of more than some hundred posts crashes
 * gdnc or the poster, so the poster makes a round trip after each sixteen. */
#import <Foundation/Foundation.h>

#include "load.h"

static struct load load;

@interface Observer : NSObject
- (void) arrived: (NSNotification *)notification;
- (void) ended: (NSNotification *)notification;
@end

@implementation Observer
- (void) arrived: (NSNotification *)notification
{
    NSDictionary *info = [notification userInfo];
    load_seen([[info objectForKey: @"number"] longLongValue], [[info objectForKey: @"time"] longLongValue]);
}
- (void) ended: (NSNotification *)notification
{
    load_report();
}
@end

static void add(id center, Observer *observer, SEL selector, NSString *name)
{
    [center addObserver: observer selector: selector name: name object: nil
        suspensionBehavior: NSNotificationSuspensionBehaviorDeliverImmediately];
}

static void postOne(id center, NSString *name, int64_t number, NSData *data)
{
    NSDictionary *info = [NSDictionary dictionaryWithObjectsAndKeys:
        [NSNumber numberWithLongLong: number], @"number", [NSNumber numberWithLongLong: load_now()], @"time",
        data, @"data", nil];
    [center postNotificationName: name object: nil userInfo: info deliverImmediately: YES];
}

int main(int argc, char **argv)
{
    NSAutoreleasePool *pool = [NSAutoreleasePool new];
    load = load_options(argc, argv);
    id center = [NSDistributedNotificationCenter defaultCenter];
    NSString *name = [NSString stringWithUTF8String: load.name], *end = [NSString stringWithUTF8String: load.end];
    Observer *observer = [Observer new];
    if (load.observes) {
        for (long i = 0; i < load.others; i++) {
            NSAutoreleasePool *inner = [NSAutoreleasePool new];
            add(center, observer, @selector(arrived:), [name stringByAppendingFormat: @".other%ld", i]);
            [inner drain];
        }
        add(center, observer, @selector(arrived:), name);
        add(center, observer, @selector(ended:), end);
        load_ready();
        [[NSRunLoop currentRunLoop] run];
    }
    NSMutableData *data = [NSMutableData dataWithLength: (NSUInteger)load.size];
    int64_t cpu = load_cpu(), start = load_now();
    for (long number = 0; number < load.count; number++) {
        NSAutoreleasePool *inner = [NSAutoreleasePool new];
        load_pace(&load, start, number);
        postOne(center, name, number, data);
        if (number % 16 == 15) {
            /* Both are answered. */
            add(center, observer, @selector(arrived:), @"org.carillon.load.trip");
            [center removeObserver: observer name: @"org.carillon.load.trip" object: nil];
        }
        [inner drain];
    }
    postOne(center, end, load.count, data);
    add(center, observer, @selector(arrived:), @"org.carillon.load.trip");
    load_posted(&load, start, cpu);
    [pool drain];
    return 0;
}
