// SPDX-License-Identifier: Apache-2.0
//
// The types that qdbusxml2cpp writes for the structures of the interface, for Qt 5 and 6 and C++17:
//
//     qdbusxml2cpp -i carillon.h -p center org.carillon.NotificationCenter1.xml
//
// A program calls registerCarillonTypes() before it uses the class. values.cpp is one.

#ifndef CARILLON_H
#define CARILLON_H

#include <QDBusArgument>
#include <QDBusMetaType>

struct CarillonPost {
    QString name, object;
    QVariantMap userInfo, options;
};
struct CarillonOutcome {
    uint receivers;
    QString error;
};
struct CarillonValue {
    QString name, object;
    QVariantMap userInfo, details;
};
struct CarillonListedValue {
    QString name, object;
    qulonglong serial;
    QVariantMap details;
};
struct CarillonLoss {
    QString name, object;
    qulonglong count;
};
struct CarillonObserver {
    qulonglong number;
    QString name, object, suspensionBehavior;
};
struct CarillonRegistration {
    qulonglong number;
    QString name, object, suspensionBehavior;
    QVariantMap options;
};
struct CarillonNotification {
    QString name, object;
    QVariantMap userInfo;
    QList<qulonglong> observers;
    QString poster;
    qulonglong serial, sequence;
    QVariantMap details;
};

// How one is written and read: the fields in their order.
#define CARILLON_STRUCTURE(Type, ...)                                                  \
    Q_DECLARE_METATYPE(Type)                                                           \
    inline QDBusArgument &operator<<(QDBusArgument &argument, const Type &value)       \
    {                                                                                  \
        const auto &[__VA_ARGS__] = value;                                             \
        return carillonWrite(argument, __VA_ARGS__);                                   \
    }                                                                                  \
    inline const QDBusArgument &operator>>(const QDBusArgument &argument, Type &value) \
    {                                                                                  \
        auto &[__VA_ARGS__] = value;                                                   \
        return carillonRead(argument, __VA_ARGS__);                                    \
    }

template <typename... Fields> QDBusArgument &carillonWrite(QDBusArgument &argument, const Fields &...fields)
{
    argument.beginStructure();
    (argument << ... << fields);
    argument.endStructure();
    return argument;
}

template <typename... Fields> const QDBusArgument &carillonRead(const QDBusArgument &argument, Fields &...fields)
{
    argument.beginStructure();
    (argument >> ... >> fields);
    argument.endStructure();
    return argument;
}

CARILLON_STRUCTURE(CarillonPost, a, b, c, d)
CARILLON_STRUCTURE(CarillonOutcome, a, b)
CARILLON_STRUCTURE(CarillonValue, a, b, c, d)
CARILLON_STRUCTURE(CarillonListedValue, a, b, c, d)
CARILLON_STRUCTURE(CarillonLoss, a, b, c)
CARILLON_STRUCTURE(CarillonObserver, a, b, c, d)
CARILLON_STRUCTURE(CarillonRegistration, a, b, c, d, e)
CARILLON_STRUCTURE(CarillonNotification, a, b, c, d, e, f, g, h)

template <typename... Types> void registerListsOf()
{
    ((qDBusRegisterMetaType<Types>(), qDBusRegisterMetaType<QList<Types>>()), ...);
}

inline void registerCarillonTypes()
{
    registerListsOf<CarillonPost, CarillonOutcome, CarillonValue, CarillonListedValue, CarillonLoss,
                    CarillonObserver, CarillonRegistration, CarillonNotification>();
    qDBusRegisterMetaType<QList<QVariantMap>>();
    qDBusRegisterMetaType<QList<qulonglong>>();
    qDBusRegisterMetaType<QMap<QString, qulonglong>>();
}

#endif
