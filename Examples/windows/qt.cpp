// SPDX-License-Identifier: Apache-2.0
//
// A window of Qt 5 (package qtbase5-dev) or Qt 6 (qt6-base-dev) that shows what it receives, and what it was told while it
// was inactive, with the class that Qt makes of the interface and the types in ../qt/carillon.h:
//
//     qdbusxml2cpp -m -i carillon.h -p center org.carillon.NotificationCenter1.xml
//     moc center.h -o center.moc
//     c++ -std=c++17 -fPIC -I. -I../qt -o window qt.cpp center.cpp $(pkg-config --cflags --libs Qt6Widgets Qt6DBus)
//     ./window & carillon post News text="it rains"

#include <QApplication>
#include <QDateTime>
#include <QDBusServiceWatcher>
#include <QLabel>
#include <QTextStream>
#include <QVBoxLayout>

#include "center.h"

static const QString name = QStringLiteral("org.carillon.NotificationCenter1");

// It need not say when it is active, as the service sees that, and it goes on when the service was away.
class Inbox : public QWidget {
public:
    Inbox() : center(name, "/org/carillon/NotificationCenter1", QDBusConnection::sessionBus())
    {
        layout.addWidget(&state);
        layout.setAlignment(Qt::AlignTop);
        connect(&center, &OrgCarillonNotificationCenter1Interface::Notifications, this, &Inbox::received);
        connect(&center, &OrgCarillonNotificationCenter1Interface::SuspensionChanged, this, &Inbox::suspensionChanged);
        connect(&center, &OrgCarillonNotificationCenter1Interface::Dropped, this, [this] { show("some were lost"); });
        connect(&watcher, &QDBusServiceWatcher::serviceRegistered, this, &Inbox::observe);
        connect(&watcher, &QDBusServiceWatcher::serviceUnregistered, this, [this] {
            showState("no notification center", false);
            observe();  // The bus starts it again for this.
        });
        observe();
    }

private:
    // Nothing here waits for an answer: the window never stands still.
    void observe()
    {
        center.SetClientOptions({{"batches", true}, {"details", QStringList{"time"}}});
        center.RemoveObservers("", "");  // It may know them from before it was away.
        center.AddObserver("News", "", {{"suspension-behavior", "hold"}});
        center.AddObserver("Level", "", {{"suspension-behavior", "coalesce"}});
        center.AddObserver("Alarm", "", {{"suspension-behavior", "deliver-immediately"}});
        if (QDBusConnection::sessionBus().interface()->isServiceRegistered(name))
            setSuspended(false);
    }

    void received(const QList<CarillonNotification> &notifications)
    {
        for (const CarillonNotification &each : notifications) {
            const bool wasInactive = suspended || each.details["time"].toLongLong() < resumedAt;
            show(each.name + ": " + each.userInfo["text"].toString() + (wasInactive ? " (while inactive)" : ""));
        }
    }

    void suspensionChanged(bool isSuspended, const QString &)
    {
        if (isSuspended != suspended)  // else only the cause is another one
            setSuspended(isSuspended);
    }

    void setSuspended(bool isSuspended)
    {
        suspended = isSuspended;
        // What was kept comes behind this, and was posted before it.
        if (!suspended)
            resumedAt = QDateTime::currentMSecsSinceEpoch() * 1000;
        showState(suspended ? "inactive" : "active", !suspended);
    }

    void showState(const QString &text, bool isActive)
    {
        state.setText(text);
        state.setStyleSheet(QString("font-weight: bold; color: ") + (isActive ? "#1a7f37" : "#6e7781"));
        QTextStream(stdout) << text << Qt::endl;
    }

    void show(const QString &text)
    {
        layout.addWidget(new QLabel(text));
        QTextStream(stdout) << text << Qt::endl;
    }

    OrgCarillonNotificationCenter1Interface center;
    QDBusServiceWatcher watcher{name, QDBusConnection::sessionBus(), QDBusServiceWatcher::WatchForRegistration | QDBusServiceWatcher::WatchForUnregistration};
    QVBoxLayout layout{this};
    QLabel state;
    bool suspended = false;
    qlonglong resumedAt = 0;
};

int main(int argc, char *argv[])
{
    QApplication application(argc, argv);
    registerCarillonTypes();
    Inbox inbox;
    inbox.setWindowTitle(application.arguments().value(1, "Qt"));
    inbox.resize(320, 200);
    inbox.setVisible(true);
    return application.exec();
}
