// SPDX-License-Identifier: Apache-2.0
//
// An application that says by itself when it is active, with Qt 5 (package qtbase5-dev):
//
//     /usr/lib/qt5/bin/moc inbox.cpp -o inbox.moc
//     c++ -fPIC -I. -o inbox inbox.cpp $(pkg-config --cflags --libs Qt5Widgets Qt5DBus)
//     ./inbox [--automatic]
//
// Where the desktop tells the service which application is active, nothing of this is needed: see --automatic, and
// docs/activity.md. Prints a line for everything that it hears.

#include <QApplication>
#include <QDBusConnection>
#include <QDBusMessage>
#include <QTextStream>
#include <QWidget>

static const QString name = QStringLiteral("org.carillon.NotificationCenter1");
static const QString path = QStringLiteral("/org/carillon/NotificationCenter1");

class Center : public QObject {
    Q_OBJECT

public:
    Center()
    {
        QDBusConnection bus = QDBusConnection::sessionBus();
        bus.connect(name, path, name, "Notification", this, SLOT(notificationReceived(QDBusMessage)));
        bus.connect(name, path, name, "SuspensionChanged", this, SLOT(suspensionChanged(bool, QString)));
    }

    // Nothing here waits for an answer.
    void call(const QString &method, const QVariantList &arguments = {})
    {
        QDBusMessage message = QDBusMessage::createMethodCall(name, path, name, method);
        message.setArguments(arguments);
        QDBusConnection::sessionBus().send(message);
    }

public slots:
    // Qt tells of the whole application, and waits until a change has settled.
    void applicationStateChanged(Qt::ApplicationState state)
    {
        call("SetSuspended", {state != Qt::ApplicationActive});
    }

    void notificationReceived(const QDBusMessage &message)
    {
        QTextStream(stdout) << "got " << message.arguments().value(0).toString() << Qt::endl;
    }

    void suspensionChanged(bool suspended, const QString &cause)
    {
        QTextStream(stdout) << (suspended ? "suspended " : "resumed ") << cause << Qt::endl;
    }
};

int main(int argc, char *argv[])
{
    QApplication application(argc, argv);
    Center center;
    center.call("AddObserver", {"org.example.Mail", "", QVariantMap{{"suspension-behavior", "coalesce"}}});

    QWidget window;
    window.setWindowTitle("Inbox");
    window.resize(200, 100);
    if (application.arguments().contains("--automatic"))
        center.call("FollowActivity");  // which is how every application starts
    else
        QObject::connect(&application, &QGuiApplication::applicationStateChanged, &center,
                         &Center::applicationStateChanged);
    window.show();
    return application.exec();
}

#include "inbox.moc"
